/// Binding of arguments to parameters: positional in order, keywords by name, everything else breaks.
#include "tracer/frontends/parameters.h"

#include "tracer/frontends/builders.h"

namespace fj {
namespace {

/// Calls visit(name) for each comma-separated name.
template <class Visit>
void each_name(std::string_view names, Visit visit) {
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    std::string_view name = names.substr(0, comma);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) visit(name);
  }
}

/// Whose default is NumPy's object for "not given": None means something else (as `where`, a mask of False).
bool defaults_to_no_value(std::string_view name) { return name == "keepdims" || name == "initial" || name == "where"; }

/// What stands for an argument that is not given, where NumPy's Python code hands it on.
bool is_no_value(std::string_view name, const V& value) {
  if (!defaults_to_no_value(name)) return false;
  auto* object = as<ObjectValue>(value);
  return object && std::string_view(Py_TYPE(object->object.get())->tp_name) == "_NoValueType";
}

}  // namespace

Parameters::Parameters(Tracer& tracer, std::string function, const Arguments& arguments, std::string_view signature)
    : tracer_(tracer), function_(std::move(function)) {
  bool keyword_only = false;
  std::size_t position = 0;
  each_name(signature, [&](std::string_view name) {
    if (name == "*") {
      keyword_only = true;
      return;
    }
    V value;
    if (!keyword_only && position < arguments.positional.size()) value = arguments.positional[position++];
    bound_.emplace_back(std::string(name), std::move(value));
  });
  if (position < arguments.positional.size()) refuse("these positional arguments");
  for (const auto& [name, value] : arguments.keywords) {
    bool found = false;
    for (auto& [parameter, bound] : bound_) {
      if (parameter != name) continue;
      if (bound) fj::refuse(function_ + "() got multiple values for argument '" + name + "'");
      bound = value;
      found = true;
    }
    if (!found) refuse("the argument '" + name + "'");
  }
  for (auto& [name, value] : bound_)
    if (is_no_value(name, value)) value = nullptr;
  // Arrays here are of no subclass, so rows need not read it; NumPy asks for its truth.
  if (const V subok = (*this)["subok"]; subok && !tracer.constant_object(subok)) refuse("the argument 'subok'");
}

V Parameters::operator[](std::string_view name) const {
  for (const auto& [parameter, value] : bound_)
    if (parameter == name) return value;
  return nullptr;
}

V Parameters::required(std::string_view name) const {
  V value = (*this)[name];
  if (!value) fj::refuse(function_ + "() misses the argument '" + std::string(name) + "'");
  return value;
}

bool Parameters::absent(std::string_view name) const {
  V value = (*this)[name];
  return !value || tracer_.is_none(value);
}

bool Parameters::flag(std::string_view name, bool otherwise) const {
  V value = (*this)[name];
  if (!value) return otherwise;
  if (!function_.starts_with("numpy.")) {
    PyObject* constant = tracer_.constant_object(value);
    if (!constant || !(PyBool_Check(constant) || constant == Py_None))
      fj::refuse(function_ + "() with a '" + std::string(name) + "' that is no bool");
  }
  return tracer_.truth(value);
}

std::int64_t Parameters::integer(std::string_view name, std::int64_t otherwise) const {
  V value = (*this)[name];
  return value ? int_argument(tracer_, value) : otherwise;
}

double Parameters::number(std::string_view name, double otherwise) const {
  V value = (*this)[name];
  if (!value) return otherwise;
  if (auto real = tracer_.constant_float(value)) return *real;
  return double(int_argument(tracer_, value));
}

std::string Parameters::text(std::string_view name, std::string_view otherwise) const {
  V value = (*this)[name];
  if (!value) return std::string(otherwise);
  PyObject* object = tracer_.constant_object(value);
  if (!object || !PyUnicode_CheckExact(object)) refuse("the argument '" + std::string(name) + "'");
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object, &length);
  if (!data) {
    PyErr_Clear();
    refuse("the argument '" + std::string(name) + "'");
  }
  return std::string(data, std::size_t(length));
}

void Parameters::unsupported(std::string_view names) const {
  each_name(names, [&](std::string_view name) {
    if (defaults_to_no_value(name) ? (*this)[name] != nullptr : !absent(name))
      refuse("the argument '" + std::string(name) + "'");
  });
}

void Parameters::refuse(const std::string& what) const { fj::unsupported(function_ + "() with " + what); }

}  // namespace fj
