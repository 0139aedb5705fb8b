// Options as text: the environment and the blocks of a thread.
//
// Each row of options.def becomes a reader and a writer of its member by the type's `read` and `write` below.
#include "runtime/base/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace fj {
namespace {

constexpr OptionRow rows[] = {
#define FJ_OPTION(name, type, fallback, choices, sentence) {#name, OptionType::type, choices, sentence},
#include "runtime/base/options.def"
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return result;
}

bool read(std::string_view text, bool& value) {
  std::string word = lower(text);
  if (word == "1" || word == "true" || word == "on" || word == "yes") return value = true, true;
  if (word == "0" || word == "false" || word == "off" || word == "no" || word.empty()) return value = false, true;
  return false;
}

bool read(std::string_view text, std::int64_t& value) {
  std::int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Every number here is a limit or a count.
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) return false;
  value = number;
  return true;
}

bool read(std::string_view text, std::string& value) {
  value = text;
  return true;
}

bool read(std::string_view text, std::optional<bool>& value) {
  std::string word = lower(text);
  if (word.empty() || word == "none" || word == "auto") return value.reset(), true;
  bool flag = false;
  if (!read(text, flag)) return false;
  value = flag;
  return true;
}

std::string write(bool value) { return value ? "true" : "false"; }
std::string write(std::int64_t value) { return std::to_string(value); }
std::string write(const std::string& value) { return value; }
std::string write(const std::optional<bool>& value) { return value ? write(*value) : "none"; }

std::string_view expectation(OptionType type) {
  switch (type) {
    case OptionType::Flag: return "true or false";
    case OptionType::Integer: return "a whole number, 0 or more";
    case OptionType::Text: return "text";
    case OptionType::Tristate: return "none, true or false";
  }
  return "";
}

bool is_choice(std::string_view choices, std::string_view text) {
  if (choices.empty()) return true;
  while (true) {
    auto bar = choices.find('|');
    if (choices.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

struct Block {
  Options options;
  std::uint64_t given;
};
thread_local std::vector<Block> blocks;

}  // namespace

std::span<const OptionRow> option_rows() { return rows; }

std::optional<std::string> set_option(Options& options, std::string_view name, std::string_view text) {
  for (const OptionRow& row : rows) {
    if (row.name != name) continue;
    bool understood = is_choice(row.choices, text);
#define FJ_OPTION(member, type, fallback, choices, sentence) \
  if (understood && name == #member) understood = read(text, options.member);
#include "runtime/base/options.def"
    if (understood) return std::nullopt;
    std::string expected(row.choices.empty() ? expectation(row.type) : row.choices);
    for (std::size_t at = 0; (at = expected.find('|', at)) != std::string::npos;) expected.replace(at, 1, " or ");
    return "option " + std::string(name) + " is " + expected + ", not '" + std::string(text) + "'";
  }
  std::string names;
  for (const OptionRow& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return "no option is called '" + std::string(name) + "'; there are: " + names;
}

std::string option_text(const Options& options, std::string_view name) {
#define FJ_OPTION(member, type, fallback, choices, sentence) \
  if (name == #member) return write(options.member);
#include "runtime/base/options.def"
  return "";
}

std::string cache_folder(const Options& options) {
  if (!options.cache_folder.empty()) return options.cache_folder;
  static const std::string users = [] {
    // Paths that are not absolute are to be ignored, as the XDG specification has it.
    auto absolute = [](const char* text) {
      return text != nullptr && text[0] == '/' ? std::string(text) : std::string();
    };
    if (const std::string cache = absolute(std::getenv("XDG_CACHE_HOME")); !cache.empty()) return cache + "/framejit";
    const std::string home = absolute(std::getenv("HOME"));
    return home.empty() ? home : home + "/.cache/framejit";
  }();
  return users;
}

const Options& environment_options() {
  static const Options options = [] {
    Options result;
    for (const OptionRow& row : rows) {
      std::string variable = "FRAMEJIT_" + std::string(row.name);
      std::ranges::transform(variable, variable.begin(), [](unsigned char c) { return char(std::toupper(c)); });
      const char* text = std::getenv(variable.c_str());
      if (!text) continue;
      if (auto problem = set_option(result, row.name, text))
        std::fprintf(stderr, "framejit: %s is ignored: %s\n", variable.c_str(), problem->c_str());
    }
    return result;
  }();
  return options;
}

const Options& current_options() { return blocks.empty() ? environment_options() : blocks.back().options; }
bool options_overridden() { return !blocks.empty(); }
std::uint64_t options_given() { return blocks.empty() ? 0 : blocks.back().given; }
void push_options(Options options, std::uint64_t given) {
  blocks.push_back({std::move(options), given | options_given()});
}
void pop_options() {
  if (!blocks.empty()) blocks.pop_back();
}

}  // namespace fj
