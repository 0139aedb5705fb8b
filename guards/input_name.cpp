// One walk from the root of a source to its end, a word for each step that a reader knows.
#include "guards/input_name.h"

#include <cctype>
#include <vector>

namespace fj {
namespace {

std::string key_text(const Source& source) {
  if (!PyUnicode_Check(source.key.get())) return describe_object(source.key.get());
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(source.key.get(), &size);
  if (bytes) return std::string(bytes, std::size_t(size));
  PyErr_Clear();
  return "";
}

bool is_plumbing(SourceKind kind) {
  switch (kind) {
    case SourceKind::Function:
    case SourceKind::FunctionGlobals:
    case SourceKind::InstanceDict:
    case SourceKind::Cell:
    case SourceKind::MethodSelf:
    case SourceKind::MethodFunction:
    case SourceKind::IteratorBase:
    case SourceKind::Referent: return true;
    default: return false;
  }
}

bool is_dict_of_modules(const std::string& key) {
  return key == "_modules" || key == "_parameters" || key == "_buffers";
}

/// Without the `L.` and `G.` that tell locals from globals.
std::string without_scopes(std::string text) {
  for (std::size_t at = 0; at + 2 < text.size(); ++at) {
    const bool begins = at == 0 || !(std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_' ||
                                     text[at - 1] == '.');
    if (begins && (text[at] == 'L' || text[at] == 'G') && text[at + 1] == '.') text.erase(at, 2);
  }
  return text;
}

}  // namespace

std::string input_name(SourceRef source) {
  std::vector<SourceRef> chain;
  for (SourceRef at = source; at; at = at->base) {
    if (!at->operands.empty()) return without_scopes(source->text());
    chain.insert(chain.begin(), at);
  }
  std::vector<std::string> parts;
  for (SourceRef at : chain) {
    if (is_plumbing(at->kind)) continue;
    // The globals of another module's function.
    if (at->kind == SourceKind::Constant && at != source && at->key && PyDict_Check(at->key.get())) continue;
    if (at->kind == SourceKind::ClosureCell)
      parts.push_back("closure" + std::to_string(at->index));
    else if (!at->key)
      parts.push_back(std::to_string(at->index));
    else if (std::string key = key_text(*at); !is_dict_of_modules(key))
      parts.push_back(std::move(key));
  }
  if (parts.size() > 1 && (parts[0] == "self" || parts[0] == "captured")) parts.erase(parts.begin());
  std::string result;
  for (const std::string& part : parts) result += (result.empty() ? "" : ".") + part;
  return result.empty() ? source->text() : result;
}

bool is_module_state(SourceRef source) {
  for (SourceRef at = source; at; at = at->base)
    if (at->key && PyUnicode_Check(at->key.get())) {
      const std::string key = key_text(*at);
      if (key == "_parameters" || key == "_buffers") return true;
    }
  return false;
}

}  // namespace fj
