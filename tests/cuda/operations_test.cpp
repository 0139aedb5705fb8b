// Every row of ops.def on its samples, through the CUDA text.
#include "graph_ir/evaluate/elements.h"
#include "graph_ir/samples.h"
#include "tests/cuda/harness.h"

namespace fj::test {

TEST(CudaOperations, compute_what_the_evaluator_says) {
  Suite suite;
  for (Op op : all_ops())
    for (DType dtype : sample_dtypes(op)) {
      if (dtype == DType::U16 || dtype == DType::I16 || dtype == DType::U32) continue;  // as their neighbours
      int number = 0;
      for (const Sample& sample : samples(op, dtype)) {
        if (number++ == 2) break;
        const bool real = is_float(dtype);
        // Of negative numbers: each processor has a rule of its own, and the emulated device has the compiler's.
        const DType result = sample.graph.type(sample.graph.outputs[0].value).dtype;
        if (op == Op::cast && real && converts_by_width && is_unsigned_integer(result)) continue;
        double ulps = 0, scale = 0;
        if (real) switch (op) {
            case Op::exp:
            case Op::exp2:
            case Op::expm1:
            case Op::log:
            case Op::log2:
            case Op::log10:
            case Op::log1p:
            case Op::sin:
            case Op::cos:
            case Op::tan:
            case Op::asin:
            case Op::acos:
            case Op::atan:
            case Op::sinh:
            case Op::cosh:
            case Op::tanh:
            case Op::asinh:
            case Op::acosh:
            case Op::atanh:
            case Op::erf:
            case Op::pow:
            case Op::atan2:
            case Op::hypot:
            case Op::rsqrt: ulps = 4; break;
            case Op::reduce_sum: case Op::cumsum: case Op::scatter_add: ulps = 8, scale = 64; break;
            case Op::reduce_prod: case Op::cumprod: ulps = 64; break;
            case Op::matmul: ulps = 16, scale = 256; break;
            default: break;
          }
        suite.add(sample.description, sample.graph, sample.inputs,
                  {.ulps = ulps, .scale = scale, .symbols = sample.symbols});
      }
    }
  suite.run();
  for (const std::string& reason : suite.left_out) EXPECT_NE(reason.find("complex"), std::string::npos) << reason;
  RecordProperty("kernels", int(suite.kernels()));
}

}  // namespace fj::test
