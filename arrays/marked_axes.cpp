// Marks are kept beside the arrays: NumPy's have no room for attributes, and a mark must not be seen by anybody else.
#include "arrays/marked_axes.h"

#include <algorithm>
#include <unordered_map>

#include "cpython/ref.h"

namespace fj {
namespace {

struct Mark {
  Ref<> array;  // weak
  std::vector<DynamicAxis> axes;
  PyObject* alive() const { return reinterpret_cast<PyWeakReference*>(array.get())->wr_object; }
};

std::unordered_map<PyObject*, Mark>& marks() {
  static auto* marks = new std::unordered_map<PyObject*, Mark>;  // never destroyed: it owns Python objects
  return *marks;
}

}  // namespace

bool mark_dynamic(PyObject* array, const std::vector<DynamicAxis>& axes) {
  Ref<> weak = Ref<>::steal(PyWeakref_NewRef(array, nullptr));
  if (!weak) return false;
  // Addresses are used again: a mark counts while its array lives.
  std::erase_if(marks(), [](const auto& entry) { return entry.second.alive() == Py_None; });
  Mark& mark = marks()[array];
  if (!mark.array) mark.array = weak;
  for (const DynamicAxis& axis : axes) {
    std::erase_if(mark.axes, [&](const DynamicAxis& known) { return known.axis == axis.axis; });
    mark.axes.push_back(axis);
  }
  return true;
}

std::vector<DynamicAxis> marked_axes(PyObject* array) {
  if (marks().empty()) return {};
  auto found = marks().find(array);
  return found != marks().end() && found->second.alive() == array ? found->second.axes : std::vector<DynamicAxis>{};
}

}  // namespace fj
