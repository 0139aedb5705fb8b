/// Convolutions of little work, as operations of the graph: a product of the weight and the windows of the image, laid
/// out as columns. Large ones are the library's.
#include <algorithm>

#include "tracer/frontends/composites.h"
#include "tracer/frontends/torch/torch.h"

namespace fj {
namespace {

/// Products of elements in one call. The library takes 20 to 50 µs for any convolution and twice that for its
/// derivative; up to here the graph is 1.3 to 3.4 times as fast on one thread, beyond it what it costs to write the
/// columns counts (benchmarks/convolutions.py).
constexpr std::int64_t kMostProducts = std::int64_t(1) << 20;

/// What the convolution does along one axis of the image.
struct Axis {
  std::int64_t kernel, stride, padding, dilation;
  SymDim count;  // of windows
};

/// An argument that is one int for all axes, or one for each.
std::vector<std::int64_t> for_each_axis(Tracer& tracer, const Parameters& p, const char* name, std::int64_t otherwise,
                                        std::size_t axes) {
  if (p.absent(name)) return std::vector(axes, otherwise);
  const V given = p[name];
  if (!is_sequence(given)) return std::vector(axes, int_argument(tracer, given));
  std::vector<std::int64_t> numbers;
  for (const V& item : tracer.sequence_items(given)) numbers.push_back(int_argument(tracer, item));
  if (numbers.size() == 1) numbers.resize(axes, numbers[0]);
  if (numbers.size() != axes) p.refuse(std::string("another number of values for ") + name);
  return numbers;
}

std::vector<Axis> axes_of(Tracer& tracer, const Parameters& p, const Dims& image, const Dims& weight) {
  const std::size_t count = image.size() - 2;
  if (!p.absent("padding"))
    if (const Ref<> words = tracer.constant_object(p["padding"]); words && PyUnicode_Check(words.get()))
      p.refuse("a padding in words");
  const auto stride = for_each_axis(tracer, p, "stride", 1, count),
             padding = for_each_axis(tracer, p, "padding", 0, count),
             dilation = for_each_axis(tracer, p, "dilation", 1, count);
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < count; ++i) {
    const SymDim& kernel = weight[i + 2];
    if (!kernel.is_constant() || kernel.value() < 1) p.refuse("a kernel of no elements, or of a size that changes");
    if (stride[i] < 1 || padding[i] < 0 || dilation[i] < 1) p.refuse("such a stride, padding or dilation");
    const std::int64_t reach = dilation[i] * (kernel.value() - 1) + 1;
    const SymDim padded = image[i + 2] + SymDim(2 * padding[i]);
    if (tracer.decide(padded, Py_LT, reach)) p.refuse("a kernel larger than the image");
    axes.push_back({kernel.value(), stride[i], padding[i], dilation[i],
                    floor_divide(tracer, padded - SymDim(reach), stride[i]) + 1});
  }
  return axes;
}

ValueId padded(Tracer& tracer, ValueId image, const std::vector<Axis>& axes) {
  if (std::all_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.padding == 0; })) return image;
  Dims amounts(2, 0);
  for (const Axis& axis : axes) amounts.push_back(axis.padding);
  Attrs attrs;
  attrs.set("low", amounts);
  attrs.set("high", amounts);
  return emit(tracer, Op::pad, {image, constant(tracer, dtype_of(tracer, image), 0.0)}, std::move(attrs));
}

/// [images, channels, counts..., kernel sizes...]
ValueId windows_of(Tracer& tracer, ValueId image, const std::vector<Axis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    Attrs attrs;
    attrs.set("axis", std::int64_t(i + 2));
    attrs.set("count", axis.count);
    attrs.set("size", axis.dilation * (axis.kernel - 1) + 1);
    attrs.set("step", axis.stride);
    image = emit(tracer, Op::windows, {image}, std::move(attrs));
    if (axis.dilation > 1)
      image = slice(tracer, image, std::int64_t(axes.size() + 2 + i), 0, axis.kernel, axis.dilation);
  }
  return image;
}

V convolution(Tracer& tracer, const char* name, std::size_t count, const Arguments& arguments) {
  Parameters p(tracer, name, arguments, "input, weight, bias, stride, padding, dilation, groups");
  if (tracer.keeps_calls()) p.refuse("a graph that is edited, in which it is one call");
  Array x = torch_tensor(tracer, p.required("input")), weight = torch_tensor(tracer, p.required("weight"));
  Array bias = p.absent("bias") ? nullptr : torch_tensor(tracer, p["bias"]);
  const auto suits = [&](const Array& array, std::size_t rank) {
    return array->dtype == x->dtype && array->storage->device == kHost && array->shape.size() == rank &&
           array->strides == row_major(array->shape);  // of axes of one element too: the library asks for these
  };
  const bool always = tracer.only_operations();
  if (x->dtype != DType::F32 && x->dtype != DType::BF16 && !(always && x->dtype == DType::F64))
    p.refuse("tensors of this dtype");
  if (!suits(x, count + 2) || !suits(weight, count + 2) || (bias && !suits(bias, 1)))
    p.refuse("tensors of different dtypes, in another order in memory, or without an axis for the images");
  // The columns are written row by row: in short rows of a length that is not known, at half of the library's speed.
  if (!x->shape.back().is_constant() && !always) p.refuse("images whose rows change their length");
  const Dims &image = x->shape, &kernel = weight->shape;
  const std::int64_t groups = p.integer("groups", 1);
  if (groups < 1 || (groups > 1 && !always)) p.refuse("groups of channels");
  const auto results_of_group = kernel[0].divide_exactly(groups);
  if (!results_of_group) p.refuse("groups that the channels can't be divided into");
  if (!same_shape(tracer, {image[1]}, {kernel[1] * groups}) || (bias && !same_shape(tracer, bias->shape, {kernel[0]})))
    p.refuse("other numbers of channels");
  const std::vector<Axis> axes = axes_of(tracer, p, image, kernel);
  Dims windows{image[0]}, columns{kernel[1]}, results{kernel[0], image[0]};
  for (const Axis& axis : axes) {
    windows.push_back(axis.count);
    columns.push_back(SymDim(axis.kernel));
    results.push_back(axis.count);
  }
  const SymDim rows = fj::product(columns), places = fj::product(windows), products = kernel[0] * rows * places;
  if (tracer.decide(products, Py_EQ, 0)) p.refuse("no elements");
  if (!always && !tracer.prefers(products, Py_LE, kMostProducts)) p.refuse("many elements");

  const DType inner = compute_dtype(x->dtype);
  // To torch a gradient depends on what it is the gradient of, which the two products do not.
  const auto read = [&](const Array& array) {
    const ValueId value = tracer.read(*array);
    return cast(tracer, tracer.requires_gradient(*array) ? itself(tracer, value) : value, inner);
  };
  ValueId value = windows_of(tracer, padded(tracer, read(x), axes), axes);
  Axes order{1};
  for (std::size_t i = 0; i < count; ++i) order.push_back(std::int64_t(count + 2 + i));
  order.push_back(0);
  for (std::size_t i = 0; i < count; ++i) order.push_back(std::int64_t(2 + i));
  Dims factor{*results_of_group, rows}, laid_out{rows, places};
  for (Dims* shape : {&factor, &laid_out})
    if (groups != 1) shape->insert(shape->begin(), groups);
  value = reshape(tracer, transpose(tracer, value, order), laid_out);
  value = matmul(tracer, reshape(tracer, read(weight), factor), value);
  Axes images_first{1, 0};
  for (std::size_t i = 0; i < count; ++i) images_first.push_back(std::int64_t(2 + i));
  value = transpose(tracer, reshape(tracer, value, results), images_first);
  if (bias) {
    Dims channels{kernel[0]};
    channels.resize(count + 1, SymDim(1));
    value = pointwise(tracer, Op::add, {value, reshape(tracer, cast(tracer, tracer.read(*bias), inner), channels)});
  }
  return torch_fresh(tracer, cast(tracer, value, x->dtype));
}

}  // namespace

V torch_conv1d(Tracer& tracer, const Arguments& arguments) { return convolution(tracer, "conv1d", 1, arguments); }
V torch_conv2d(Tracer& tracer, const Arguments& arguments) { return convolution(tracer, "conv2d", 2, arguments); }
V torch_conv3d(Tracer& tracer, const Arguments& arguments) { return convolution(tracer, "conv3d", 3, arguments); }

}  // namespace fj
