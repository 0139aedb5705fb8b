/// Where a graph's arrays are.
///
/// A program works on one device: that of the first array it reads that has dimensions or is no array of the host.
/// Where another one comes in the graph ends, and the next piece has that one's program. Tensors of no dimensions in
/// the host's memory are numbers to torch, which takes them beside tensors of any device: a program on a device is
/// given a copy of each (ProgramParts::host_inputs). What is made of such numbers alone is the host's, so that it can't
/// be computed in a program on a device.
#include "tracer/modes/devices.h"

#include <algorithm>
#include <set>

#include "tracer/state/placement.h"
#include "tracer/state/transform_ledger.h"

namespace fj {

namespace {

/// The arrays in a value, and in containers it is: `inside` from some place on.
class Collected {
 public:
  std::vector<const ArrayValue*> arrays;
  std::size_t direct = 0;  // so many were operands themselves

  void add(const V& value, bool inside = false) {
    if (!value) return;
    if (auto* array = as<ArrayValue>(value)) {
      arrays.insert(inside ? arrays.end() : arrays.begin(), array);
      direct += !inside;
    }
    if (!as<TupleValue>(value) && !as<ListValue>(value) && !as<DictValue>(value) && !as<SliceValue>(value)) return;
    if (!seen_.insert(value.get()).second) return;  // a list may hold itself
    if (auto* tuple = as<TupleValue>(value))
      for (const V& item : tuple->items) add(item, true);
    if (auto* list = as<ListValue>(value))
      for (const V& item : list->items) add(item, true);
    if (auto* dict = as<DictValue>(value))
      for (const auto& [key, item] : dict->items) add(item, true);
    if (auto* slice = as<SliceValue>(value))
      for (const V& part : {slice->start, slice->stop, slice->step}) add(part, true);
  }

 private:
  std::set<const Value*> seen_;
};

[[noreturn]] void several(int first, int second) {
  break_graph(BreakReason::SeveralDevices, "arrays of " + device_text(first) + " and of " + device_text(second));
}

}  // namespace

std::string refusal(const TraceRun& t, int device) {
  if (t.request.refusal) return t.request.refusal(device);
  return device == kHost ? "" : "no programs are made for it here";
}

std::string why_not_compiled(const TraceRun& tracer, PyObject* array) {
  const ArrayInfo info = describe(array);
  return info.unsupported.empty()
             ? "a tensor of device " + device_text(info.device) + ": " + refusal(tracer, info.device)
             : info.unsupported;
}

void place_graph(TraceRun& t, int device) {
  if (t.placement->graph.value_or(device) != device) several(*t.placement->graph, device);
  if (!t.placement->graph && device != kHost) {
    // Of the numbers so far: branches are decided by the host, and a device's powers are not the C library's.
    const bool powers = std::any_of(t.graph().nodes.begin(), t.graph().nodes.end(),
                                    [](const Node& node) { return node.op == Op::pow; });
    if (powers || !t.transforms->followed.empty()) several(kHost, device);
  }
  t.placement->graph = device;
}

void place_graph(TraceRun& t, const ArrayValue& array) {
  const int device = array.storage->device;
  if (device == kHost && array.storage->shape.empty()) return;
  if (t.placement->scopes > 0 && device != t.placement->made_on) several(t.placement->made_on, device);
  place_graph(t, device);
}

int TraceRun::device() const { return placement->made_on; }

void TraceRun::make_on(int device) {
  if (device != kHost)
    if (std::string why = refusal(*this, device); !why.empty())
      break_graph(BreakReason::UnsupportedArray, "a tensor of device " + device_text(device) + ": " + why);
  placement->made_on = device;
  placement->made_of_arrays = false;
}

DeviceScope::DeviceScope(Tracer& tracer, std::span<const V> operands,
                         std::span<const std::pair<std::string, V>> keywords)
    : run_(static_cast<TraceRun&>(tracer)),
      device_(run_.placement->made_on),
      of_arrays_(run_.placement->made_of_arrays) {
  Collected found;
  for (const V& operand : operands) found.add(operand);
  for (const auto& [name, value] : keywords) found.add(value);
  int device = kHost;
  bool of_host = false;
  for (std::size_t i = 0; i < found.arrays.size(); ++i) {
    const ArrayValue& array = *found.arrays[i];
    const int here = array.storage->device;
    of_host = of_host || (here == kHost && (!array.shape.empty() ||
                                            i >= found.direct));  // of lists torch takes those of one device only
    if (here == kHost) continue;
    if (device != kHost && device != here) several(device, here);
    device = here;
  }
  if (device != kHost && of_host) several(device, kHost);
  run_.placement->made_on = device;
  run_.placement->made_of_arrays = !found.arrays.empty();
  ++run_.placement->scopes;
}

DeviceScope::~DeviceScope() {
  run_.placement->made_on = device_;
  run_.placement->made_of_arrays = of_arrays_;
  --run_.placement->scopes;
}

}  // namespace fj
