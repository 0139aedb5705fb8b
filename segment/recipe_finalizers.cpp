/// What a piece lets go of when it runs: the objects of variables it assigns, and what its effects replace.
///
/// Containers are looked at with their C class's tp_traverse, which runs no Python code and holds nothing. What is
/// counted is at least what goes: of a list or deque that is changed all items, of a dict from which something is
/// deleted everything.
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <array>

#include "cpython/cpython.h"
#include "segment/finalizers.h"
#include "segment/recipe_run.h"

namespace fj {
namespace {

/// What an attribute holds in the object itself (borrowed), or null.
PyObject* own_attribute(PyObject* owner, PyObject* name) {
  if (PyType_Check(owner)) return PyDict_GetItemWithError(reinterpret_cast<PyTypeObject*>(owner)->tp_dict, name);
  PyObject* member = fj_type_lookup(Py_TYPE(owner), name);
  if (member && Py_TYPE(member) == &PyMemberDescr_Type)
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(owner) +
                                         reinterpret_cast<PyMemberDescrObject*>(member)->d_member->offset);
  PyObject* members = fj_instance_dict(owner);
  return members ? PyDict_GetItemWithError(members, name) : nullptr;
}

/// A method of lists and sets that only adds.
bool only_adds(PyObject* method) {
  const auto& methods = once([] {
    const auto named = [](PyTypeObject& type, const char* name) {
      return PyObject_GetAttrString(reinterpret_cast<PyObject*>(&type), name);
    };
    return std::array{named(PyList_Type, "append"), named(PyList_Type, "extend"), named(PyList_Type, "insert"),
                      named(PySet_Type, "add")};
  });
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

}  // namespace

bool RecipeRun::drops_quietly(std::span<const ArrayRef> held) const {
  std::vector<Drop> drops;
  auto add = [](PyObject* object, void* place) {
    if (!ends_alone(object)) static_cast<std::vector<Drop>*>(place)->push_back({object, 1});
    return 0;
  };
  for (int slot : segment_.recipe.let_go)
    if (std::size_t(slot) < values_.slots.size()) add(values_.slots[std::size_t(slot)], &drops);
  std::vector<PyObject*> whole;
  for (const RecipeStep& step : segment_.recipe.steps) {
    if (!is_effect(step.op)) continue;
    PyObject* owner = argument(step, 0);
    if (!owner) continue;  // made of the program's results
    switch (step.op) {
      case RecipeOp::SetAttr: case RecipeOp::DelAttr: add(own_attribute(owner, step.object.get()), &drops); continue;
      case RecipeOp::SetCell: add(PyCell_GET(owner), &drops); continue;
      case RecipeOp::BumpVersion: continue;
      case RecipeOp::Mutate:
        if (only_adds(step.object.get())) continue;
        break;
      case RecipeOp::SetItem:
        if (PyDict_Check(owner) && step.args.size() > 2 && step.args[2] >= 0) {
          if (PyObject* key = argument(step, 1)) add(PyDict_GetItemWithError(owner, key), &drops);
          continue;
        }
        break;
      default: break;
    }
    if (std::find(whole.begin(), whole.end(), owner) != whole.end()) continue;
    whole.push_back(owner);
    if (auto traverse = builtin_base(Py_TYPE(owner))->tp_traverse) traverse(owner, add, &drops);
  }
  PyErr_Clear();  // of a key that can't be compared: the effect itself will say so
  if (drops.empty()) return true;
  // The registers' references are ours and go too, as do the caller's.
  const auto by_object = [](const Drop& a, const Drop& b) { return a.object < b.object; };
  std::sort(drops.begin(), drops.end(), by_object);
  const std::size_t count = drops.size();
  const auto add_ours = [&](PyObject* object) {
    if (const Drop ours{object, 1};
        std::binary_search(drops.begin(), drops.begin() + std::ptrdiff_t(count), ours, by_object))
      drops.push_back(ours);
  };
  for (const Ref<>& made : registers_) add_ours(made.get());
  for (const ArrayRef& input : held) add_ours(static_cast<PyObject*>(input.object));
  return fj::drops_quietly(drops);
}

}  // namespace fj
