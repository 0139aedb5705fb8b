// The reference back end: each node by graph_ir's evaluator on row-major copies of the arrays. Slow and plain:
// the oracle of the tests, and a way to see whether a wrong result comes from the graph or from the compiler.
#include <cstring>

#include "codegen/compile.h"
#include "graph_ir/evaluate/evaluate.h"
#include "graph_ir/print.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

using Sizes = std::vector<std::int64_t>;

Sizes strides_of(const std::optional<Strides>& strides, const Dims& shape, std::span<const std::int64_t> symbols) {
  return strides ? evaluate(*strides, symbols) : evaluate(contiguous_strides(shape), symbols);
}

/// Calls `visit(row-major position, byte offset)` for every element of a strided array.
template <class Visit>
void for_each_element(const Sizes& shape, const Sizes& strides, std::size_t bytes, Visit&& visit) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  for (std::int64_t position = 0; position < count; ++position) {
    std::int64_t rest = position, offset = 0;
    for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i]) offset += rest % shape[i] * strides[i];
    visit(position, offset * std::int64_t(bytes));
  }
}

DenseArray read(const void* memory, DType dtype, const Sizes& shape, const Sizes& strides) {
  DenseArray result(dtype, shape);
  const std::size_t bytes = size_in_bytes(dtype);
  for_each_element(shape, strides, bytes, [&](std::int64_t position, std::int64_t offset) {
    std::memcpy(result.element(position), static_cast<const char*>(memory) + offset, bytes);
  });
  return result;
}

void write(const DenseArray& array, void* memory, const Sizes& strides) {
  const std::size_t bytes = size_in_bytes(array.dtype);
  for_each_element(array.shape, strides, bytes, [&](std::int64_t position, std::int64_t offset) {
    std::memcpy(static_cast<char*>(memory) + offset, array.element(position), bytes);
  });
}

/// References held during one run: released when it ends, whatever the way.
class Held {
 public:
  explicit Held(Host& host) : host_(host) {}
  ~Held() {
    for (const ArrayRef& array : arrays_)
      if (array.object) host_.release(array.object);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  ArrayRef add(ArrayRef array) {
    arrays_.push_back(array);
    return array;
  }
  std::vector<ArrayRef> take() { return std::exchange(arrays_, {}); }

 private:
  Host& host_;
  std::vector<ArrayRef> arrays_;
};

class ReferenceProgram final : public Program {
 public:
  ReferenceProgram(Graph graph, bool float_conditions)
      : graph_(std::move(graph)), float_conditions_(float_conditions) {}

  std::uint32_t run(Call& call) const override {
    if (!evaluate_definitions(graph_, call.symbols)) return kIntegerDivisionByZero;
    const std::span<std::int64_t> symbols = call.symbols;

    std::vector<DenseArray> values(graph_.value_count());
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Input& input = graph_.inputs[i];
      const Type& type = graph_.type(input.value);
      values[input.value.index] = read(call.inputs[i].data, type.dtype, evaluate(type.shape, symbols),
                                       strides_of(input.strides, type.shape, symbols));
    }

    // What fails the call: integer failures always, IEEE conditions only those the caller traps.
    const std::uint32_t fatal = ~kFloatConditions | (float_conditions_ ? call.trapped : 0);
    for (const Node& node : graph_.nodes) {
      std::uint32_t status = kOk;
      if (node.op == Op::extern_call) {
        if (!run_extern(*call.host, node, symbols, values)) status = kHostFailed;
      } else {
        std::vector<const DenseArray*> operands;
        for (ValueId operand : node.operands) operands.push_back(&values[operand.index]);
        if (!node.bodies.empty()) {
          std::vector<DenseArray> results;
          status = evaluate_control(node, operands, symbols, results);
          if (status & fatal) return status & fatal;
          for (std::size_t i = 0; i < results.size(); ++i) values[node.results[i].index] = std::move(results[i]);
          continue;
        }
        DenseArray result;
        status = count_size(graph_, node, operands, symbols);
        if (status & fatal) return status & fatal;
        status = evaluate(graph_, node, operands, symbols, result);
        values[node.results[0].index] = std::move(result);
      }
      if (status & fatal) return status & fatal;
    }

    Held outputs(*call.host);
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      const DenseArray& value = values[output.value.index];
      const Sizes strides = strides_of(output.strides, graph_.type(output.value).shape, symbols);
      const ArrayRef array = outputs.add(call.host->allocate(int(i), value.dtype, value.shape, strides));
      if (!array.object) return kHostFailed;
      write(value, array.data, strides);
    }

    // Nothing can fail from here on.
    for (const Write& commit : graph_.writes) {
      const Input& input = graph_.inputs[std::size_t(commit.input)];
      write(values[commit.value.index], call.inputs[std::size_t(commit.input)].data,
            strides_of(input.strides, graph_.type(input.value).shape, symbols));
    }
    const std::vector<ArrayRef> results = outputs.take();
    std::copy(results.begin(), results.end(), call.outputs.begin());
    return kOk;
  }

  int kernel_count() const override { return 0; }
  std::string text() const override { return "reference evaluator of\n" + print(graph_); }

 private:
  bool run_extern(Host& host, const Node& node, std::span<const std::int64_t> symbols,
                  std::vector<DenseArray>& values) const {
    using Layouts = std::vector<std::optional<Dims>>;
    const Layouts& operand_layouts = node.attrs.get<Layouts>("operand_strides");
    const Layouts& result_layouts = node.attrs.get<Layouts>("result_strides");
    auto layout = [](const Layouts& layouts, std::size_t i) { return i < layouts.size() ? layouts[i] : std::nullopt; };

    Held operands(host), results(host);
    std::vector<ArrayRef> arguments;
    for (std::size_t i = 0; i < operand_layouts.size(); ++i) {
      const DenseArray& value = values[node.operands[i].index];
      const Sizes strides = strides_of(layout(operand_layouts, i), graph_.type(node.operands[i]).shape, symbols);
      arguments.push_back(operands.add(host.allocate(-1, value.dtype, value.shape, strides)));
      if (!arguments.back().object) return false;
      write(value, arguments.back().data, strides);
    }
    std::vector<ArrayRef> made(node.results.size());
    const bool ran = host.call_extern(node.attrs.get<std::int64_t>("handle"), arguments, symbols, made);
    for (const ArrayRef& array : made) results.add(array);
    if (!ran) return false;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Type& type = graph_.type(node.results[i]);
      values[node.results[i].index] = read(made[i].data, type.dtype, evaluate(type.shape, symbols),
                                           strides_of(layout(result_layouts, i), type.shape, symbols));
    }
    return true;
  }

  Graph graph_;
  bool float_conditions_;
};

}  // namespace

std::unique_ptr<Program> compile_reference(const Graph& graph, const CompileOptions& options) {
  return std::make_unique<ReferenceProgram>(graph, options.float_conditions);
}

}  // namespace fj
