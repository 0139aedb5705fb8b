/// Options, one row of options.def each: typed values, and their texts for the environment and Python.
///
/// Three layers, the later wins: defaults of the table, the environment (read once, here and nowhere else), then copies
/// of the struct changed by the caller: the arguments of one `compile`, or a `with framejit.options(...)` block of one
/// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fj {

enum class OptionType : std::uint8_t { Flag, Integer, Text, Tristate };

namespace option_types {
using Flag = bool;
using Integer = std::int64_t;
using Text = std::string;
using Tristate = std::optional<bool>;
}  // namespace option_types

struct Options {
#define FJ_OPTION(name, type, fallback, choices, sentence) option_types::type name = fallback;
#include "runtime/base/options.def"

  bool operator==(const Options&) const = default;
  /// Whether what is compiled under the one serves calls under the other.
  bool same_code(const Options& other) const {
    Options like = *this;
    like.on_recompile = other.on_recompile;
    like.progress = other.progress;
    return like == other;
  }
};

struct OptionRow {
  std::string_view name;
  OptionType type;
  std::string_view choices, sentence;
};
std::span<const OptionRow> option_rows();

/// Sets one option from its text ("1", "true", "off", "none", "42"). Nullopt: done; else a sentence for the user.
std::optional<std::string> set_option(Options& options, std::string_view name, std::string_view text);
/// The text `set_option` would accept for the current value; "" for a name that is no option.
std::string option_text(const Options& options, std::string_view name);

/// The folder for compiled kernels: the option, else the user's cache folder. "" if there is neither.
std::string cache_folder(const Options& options);

/// Defaults changed by the environment. A variable with a bad value is reported on stderr once and ignored.
const Options& environment_options();
/// Those of the innermost block of this thread, else the environment's.
const Options& current_options();
/// True inside a block of this thread: callers that keep their own Options must look at current_options().
bool options_overridden();
/// Opens and closes a block on this thread. `given`: what it says, by row of the table; what the blocks around it say
/// holds too.
void push_options(Options options, std::uint64_t given);
void pop_options();
/// What this thread's blocks say, by row.
std::uint64_t options_given();

}  // namespace fj
