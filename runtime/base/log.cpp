// The choice of what is logged, and where it goes.
//
// The choice is an immutable list of (artifact, pattern) swapped as a whole, so that readers on other threads see
// either the old or the new one; `logged_artifacts` answers the common "nothing" without it.
#include "runtime/base/log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/fork_lock.h"
#include "runtime/base/options.h"

namespace fj {
namespace {

constexpr std::string_view names[] = {
#define FJ_ARTIFACT(name, level, sentence) #name,
#include "runtime/base/log.def"
};

constexpr LogLevel levels[] = {
#define FJ_ARTIFACT(name, level, sentence) LogLevel::level,
#include "runtime/base/log.def"
};

using Choice = std::vector<std::pair<Artifact, std::string>>;  // pattern "": every function

struct State {
  std::mutex mutex;
  std::shared_ptr<const Choice> choice;
  std::shared_ptr<const LogSink> sink;
};

State& state() {
  static State* state = [] {
    auto* made = new State;  // never destroyed: threads may log while the process ends
    keep_over_forks(made->mutex);
    return made;
  }();
  return *state;
}

/// `*` any characters, `?` one character.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// A pattern names a function as the user thinks of it: `make.<locals>.Encoder.forward` is also `Encoder.forward`.
bool matches_function(std::string_view pattern, std::string_view function) {
  if (matches(pattern, function)) return true;
  constexpr std::string_view locals = "<locals>.";
  auto at = function.rfind(locals);
  return at != std::string_view::npos && matches(pattern, function.substr(at + locals.size()));
}

std::optional<std::string> parse(std::string_view text, Choice& choice) {
  while (!text.empty()) {
    auto comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (item.empty()) continue;
    auto colon = item.find(':');
    std::string_view artifact = item.substr(0, colon);
    std::string pattern(colon == std::string_view::npos ? "" : item.substr(colon + 1));
    bool known = false;
    for (std::size_t i = 0; i < std::size(names); ++i) {
      if (artifact != "all" && artifact != names[i]) continue;
      choice.emplace_back(Artifact(i), pattern);
      known = true;
    }
    if (!known) {
      std::string all = "all";
      for (std::string_view name : names) all += ", " + std::string(name);
      return "no log is called '" + std::string(artifact) + "'; there are: " + all;
    }
  }
  return std::nullopt;
}

void publish(Choice choice) {
  std::uint32_t bits = 0;
  for (const auto& [artifact, pattern] : choice) bits |= 1u << int(artifact);
  auto& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.choice = std::make_shared<const Choice>(std::move(choice));
  logged_artifacts.store(bits, std::memory_order_relaxed);
}

std::shared_ptr<const Choice> current_choice() {
  {
    std::lock_guard lock(state().mutex);
    if (state().choice) return state().choice;
  }
  Choice choice;
  if (auto problem = parse(environment_options().logs, choice)) {
    std::fprintf(stderr, "framejit: FRAMEJIT_LOGS: %s\n", problem->c_str());
    choice.clear();
  }
  publish(std::move(choice));
  std::lock_guard lock(state().mutex);
  return state().choice;
}

}  // namespace

std::atomic<std::uint32_t> logged_artifacts{UINT32_MAX};

std::string_view name(Artifact artifact) { return names[int(artifact)]; }
std::span<const std::string_view> artifact_names() { return names; }

std::optional<std::string> set_logs(std::string_view text) {
  Choice choice;
  if (auto problem = parse(text, choice)) return problem;
  publish(std::move(choice));
  return std::nullopt;
}

void set_log_sink(LogSink sink) {
  auto& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.sink = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
}

bool log_enabled_for(Artifact artifact, std::string_view function) {
  auto choice = current_choice();
  for (const auto& [chosen, pattern] : *choice)
    if (chosen == artifact && (pattern.empty() || function.empty() || matches_function(pattern, function))) return true;
  return false;
}

void log(Artifact artifact, const std::string& text) { log(artifact, text, levels[int(artifact)]); }

void log(Artifact artifact, const std::string& text, LogLevel level) {
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  // Outside the lock: a sink runs Python code, which may log.
  if (sink) return (*sink)(artifact, level, text);
  std::string line = text;
  if (line.empty() || line.back() != '\n') line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace fj
