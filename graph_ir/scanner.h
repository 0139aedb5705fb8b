/// Words, numbers and marks of the text of graphs and regions: what their parsers share. Comments run from `;` to the end
/// of the line.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "graph_ir/parse.h"

namespace fj {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& message) const { throw ParseError(line_, message); }

  std::string found() const {
    if (position_ >= text_.size()) return "the end of the text";
    std::size_t end = text_.find_first_of(" \n", position_);
    return "`" +
           std::string(text_.substr(position_,
                                    std::min(end == std::string_view::npos ? 20 : end - position_, std::size_t(20)))) +
           "`";
  }

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  void skip_space() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == '\n')
        ++line_;
      else if (c == ';')
        while (position_ + 1 < text_.size() && text_[position_ + 1] != '\n') ++position_;
      else if (!std::isspace(static_cast<unsigned char>(c)))
        return;
      ++position_;
    }
  }

  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(position_, token.size()) != token) return false;
    position_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail("expected `" + std::string(token) + "`, found " + found());
  }

  static bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  bool accept_keyword(std::string_view keyword) {
    skip_space();
    if (text_.substr(position_, keyword.size()) != keyword) return false;
    const std::size_t end = position_ + keyword.size();
    if (end < text_.size() && is_word_character(text_[end])) return false;
    position_ = end;
    return true;
  }

  void keyword(std::string_view keyword) {
    if (!accept_keyword(keyword)) fail("expected `" + std::string(keyword) + "`, found " + found());
  }

  std::string word(std::string_view also_allowed = "") {
    skip_space();
    const std::size_t start = position_;
    while (is_word_character(peek()) || (peek() && also_allowed.find(peek()) != std::string_view::npos)) ++position_;
    if (start == position_) fail("expected a name, found " + found());
    return std::string(text_.substr(start, position_ - start));
  }

  std::int64_t integer() {
    skip_space();
    std::int64_t value;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected an integer, found " + found());
    position_ = std::size_t(end - text_.data());
    return value;
  }

  std::string number_text() {
    skip_space();
    const std::size_t start = position_;
    if (peek() == '-') ++position_;
    while (is_word_character(peek()) || peek() == '.' ||
           ((peek() == '-' || peek() == '+') && text_[position_ - 1] == 'e'))
      ++position_;
    if (start == position_) fail("expected a number, found " + found());
    return std::string(text_.substr(start, position_ - start));
  }

  double floating() {
    const std::string digits = number_text();
    char* end;
    const double value = std::strtod(digits.c_str(), &end);
    if (*end) fail("expected a number, found `" + digits + "`");
    return value;
  }

  DType dtype() {
    const std::string name = word();
    if (auto found = dtype_from_name(name)) return *found;
    fail("no dtype is called `" + name + "`");
  }

  bool boolean() {
    if (accept_keyword("true")) return true;
    if (accept_keyword("false")) return false;
    fail("expected `true` or `false`, found " + found());
  }

  Scalar scalar(DType dtype) {
    switch (category(dtype)) {
      case DTypeCategory::Bool: return boolean();
      case DTypeCategory::Signed: return integer();
      case DTypeCategory::Float: return floating();
      case DTypeCategory::Unsigned: {
        const std::string digits = number_text();
        std::uint64_t result;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
        if (error != std::errc() || end != digits.data() + digits.size())
          fail("expected an unsigned integer, found `" + digits + "`");
        return result;
      }
      case DTypeCategory::Complex: {
        expect("(");
        const double real = floating();
        expect(",");
        const double imaginary = floating();
        expect(")");
        return std::pair(real, imaginary);
      }
    }
    __builtin_unreachable();
  }

 protected:
  std::string_view text_;
  std::size_t position_ = 0;
  int line_ = 1;
};

}  // namespace fj
