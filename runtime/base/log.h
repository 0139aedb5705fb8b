/// Logs: what framejit says about its work, chosen by artifact and function (`graphs:Encoder.*`).
///
///     if (log_enabled(Artifact::graphs, function)) log(Artifact::graphs, text(graph));
///
/// `log_enabled` with nothing chosen is one load. Text goes to stderr, or to the sink Python has set. Safe on any
/// thread, also on one that other threads wait for: a sink must wait for nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fj {

enum class Artifact : std::uint8_t {
#define FJ_ARTIFACT(name, level, sentence) name,
#include "runtime/base/log.def"
};

/// The numbers are those of Python's logging.
enum class LogLevel : std::uint8_t { debug = 10, info = 20, warning = 30 };

std::string_view name(Artifact artifact);
std::span<const std::string_view> artifact_names();

/// Chooses what is logged from now on: "graph_breaks,graphs:Encoder.*"; "all" is every artifact. Nullopt: done;
/// else a sentence for the user, and nothing has changed.
std::optional<std::string> set_logs(std::string_view choice);

using LogSink = std::function<void(Artifact, LogLevel, const std::string& text)>;
/// Empty: stderr.
void set_log_sink(LogSink sink);

bool log_enabled_for(Artifact artifact, std::string_view function);
/// One bit per artifact that is logged for at least one function. Starts with every bit set: the first question
/// reads the option `logs`.
extern std::atomic<std::uint32_t> logged_artifacts;

/// `function` is a qualified name; artifacts that belong to no function pass none and ignore patterns.
inline bool log_enabled(Artifact artifact, std::string_view function = {}) {
  return (logged_artifacts.load(std::memory_order_relaxed) >> int(artifact) & 1) && log_enabled_for(artifact, function);
}

/// Writes `text`, which may have several lines and needs no newline at its end. The level is the artifact's.
void log(Artifact artifact, const std::string& text);
void log(Artifact artifact, const std::string& text, LogLevel level);

}  // namespace fj
