/// Functions of torch that are many operations, as the calls they are made of (framejit/_support/torch_composites.py,
/// which is traced): a product of tensors by letters, a scan by any associative function.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cpython/objects.h"
#include "runtime/base/error.h"
#include "tracer/frontends/builders.h"
#include "tracer/frontends/parameters.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

V by_composite(Tracer& tracer, const char* name, std::vector<V> arguments) {
  const Ref<> function = imported("framejit._support.torch_composites", name);
  FJ_CHECK(function, "framejit._support.torch_composites has the function");
  return tracer.call(tracer.constant(function), std::move(arguments));
}

/// The terms of an equation and, last, that of the result.
std::vector<std::string> terms_of(const std::string& equation) {
  std::vector<std::string> terms{""};
  std::string letters;
  for (std::size_t i = 0; i < equation.size(); ++i) {
    const char c = equation[i];
    if (c == ' ') continue;
    if (c == ',' && letters.find('>') == std::string::npos) terms.emplace_back();
    else if (c == '-' && i + 1 < equation.size() && equation[i + 1] == '>') ++i, terms.emplace_back(), letters += '>';
    else if (std::isalpha(static_cast<unsigned char>(c))) terms.back() += c, letters += c;
    else unsupported("einsum() with an ellipsis");
  }
  if (std::count(letters.begin(), letters.end(), '>') > 1) unsupported("einsum() of this equation");
  if (letters.find('>') == std::string::npos) {
    const std::set<char> distinct(letters.begin(), letters.end());
    terms.emplace_back();
    for (char c : distinct)
      if (std::count(letters.begin(), letters.end(), c) == 1) terms.back() += c;
  }
  for (const std::string& term : terms)
    if (std::set<char>(term.begin(), term.end()).size() != term.size()) unsupported("einsum() of a diagonal");
  for (char c : terms.back())
    if (letters.substr(0, letters.find('>')).find(c) == std::string::npos)
      unsupported("einsum() of this equation");
  return terms;
}

/// Whether each pair of operands, from the left, is a product of matrices whose rows come before its columns in the
/// result: torch lays other results out by other rules.
bool by_products(const std::vector<std::string>& terms) {
  const std::string& wanted = terms.back();
  std::set<char> all, found(terms[0].begin(), terms[0].end());
  for (const std::string& term : terms) all.insert(term.begin(), term.end());
  std::vector<char> letters(wanted.begin(), wanted.end());
  for (char c : all)
    if (wanted.find(c) == std::string::npos) letters.push_back(c);
  std::vector<int> left(letters.size());  // operands that have the letter and are still to come
  for (std::size_t l = 0; l < letters.size(); ++l)
    for (std::size_t t = 0; t + 1 < terms.size(); ++t) left[l] += terms[t].find(letters[l]) != std::string::npos;
  for (std::size_t t = 1; t + 1 < terms.size(); ++t) {
    std::set<char> gone;
    bool product = false;
    int first_row = -1, first_column = -1;
    for (std::size_t l = 0; l < letters.size(); ++l) {
      const bool ours = found.count(letters[l]) > 0, theirs = terms[t].find(letters[l]) != std::string::npos;
      if (!ours && !theirs) continue;
      bool summed = false;
      if (l >= wanted.size()) {
        if (ours && theirs) summed = --left[l] == 1, product = product || summed;
        else summed = left[l] == 1;
      }
      if (summed) gone.insert(letters[l]);
      else if (ours && !theirs && first_row < 0) first_row = int(l);
      else if (theirs && !ours && first_column < 0) first_column = int(l);
    }
    if (!product || (first_row >= 0 && first_column >= 0 && first_column < first_row)) return false;
    found.insert(terms[t].begin(), terms[t].end());
    for (char c : gone) found.erase(c);
  }
  return true;
}

}  // namespace

V torch_einsum(Tracer& tracer, const Arguments& arguments) {
  const std::vector<V>& given = arguments.positional;
  PyObject* const equation = given.empty() ? nullptr : tracer.constant_object(given[0]);
  if (!equation || !PyUnicode_Check(equation) || !arguments.keywords.empty())
    unsupported("einsum() by numbers of axes");
  std::vector<V> operands(given.begin() + 1, given.end());
  if (operands.size() == 1 && (operands[0]->kind == ValueKind::List || operands[0]->kind == ValueKind::Tuple))
    operands = tracer.sequence_items(operands[0]);
  const std::vector<std::string> terms = terms_of(text_of(equation));
  // Of more operands torch may choose the order, with a package that knows how.
  if (operands.size() < 2 || terms.size() != operands.size() + 1 || !by_products(terms))
    unsupported("einsum() that is no product of matrices");
  if (operands.size() > 2) {
    const Ref<> available = torch_object("backends.opt_einsum.is_available");
    const Ref<> answer = available ? Ref<>::steal(PyObject_CallNoArgs(available.get())) : Ref<>();
    PyErr_Clear();
    if (answer.get() != Py_False) unsupported("einsum() in an order of opt_einsum's");
  }
  std::map<char, SymDim> sizes;
  DType dtype{};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Array operand = torch_tensor(tracer, operands[i]);
    if (i == 0) dtype = operand->dtype;
    if (operand->dtype != dtype || (dtype != DType::F32 && dtype != DType::F64) ||
        operand->rank() != int(terms[i].size()))
      unsupported("einsum() of these tensors");
    for (std::size_t d = 0; d < terms[i].size(); ++d) {
      const SymDim& size = operand->shape[d];
      const auto known = sizes.emplace(terms[i][d], size).first;
      if (!tracer.decide(known->second, Py_EQ, size) || tracer.decide(size, Py_LE, 1))
        unsupported("einsum() of axes that are repeated");
    }
  }
  operands.insert(operands.begin(), given[0]);
  return by_composite(tracer, "einsum", std::move(operands));
}

V torch_associative_scan(Tracer& tracer, const Arguments& arguments) {
  Parameters p(tracer, "associative_scan", arguments, "combine_fn, xs, dim, reverse, combine_mode");
  if (p.text("combine_mode", "pointwise") != "generic") unsupported("associative_scan() of a device's own code");
  V xs = p.required("xs");
  const bool several = xs->kind == ValueKind::Tuple || xs->kind == ValueKind::List;
  const std::vector<V> leaves = several ? tracer.sequence_items(xs) : std::vector<V>{xs};
  if (leaves.empty()) unsupported("associative_scan() of nothing");
  std::int64_t dim = p.integer("dim", 0);
  for (const V& leaf : leaves) {
    const Array array = torch_tensor(tracer, leaf), first = torch_tensor(tracer, leaves[0]);
    if (dim < 0 || dim >= array->rank() || !same_shape(tracer, array->shape, first->shape) ||
        tracer.decide(array->shape[std::size_t(dim)], Py_LE, 1))
      unsupported("associative_scan() over this axis");
  }
  return by_composite(tracer, "associative_scan",
                      {p.required("combine_fn"), xs, p.required("dim"), tracer.boolean(p.flag("reverse", false))});
}

}  // namespace fj
