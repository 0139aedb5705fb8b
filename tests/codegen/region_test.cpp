// The code of regions against the evaluator: programs as users write them, and random ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "codegen/llvm/region.h"
#include "graph_ir/ops.h"
#include "graph_ir/region/chunks.h"
#include "graph_ir/region/region.h"

namespace fj::test {
namespace {

using region::Region;

std::uint64_t cell(DType dtype, const Scalar& scalar) {
  const DenseArray array = scalar_array(dtype, scalar);
  std::uint64_t bits = 0;
  std::memcpy(&bits, array.data.data(), array.data.size());
  return bits;
}

Scalar scalar_of(DType dtype, std::uint64_t cell) {
  DenseArray array(dtype, {});
  std::memcpy(array.data.data(), &cell, array.data.size());
  return array.scalar(0);
}

/// To the last bit, but for which NaN it is.
bool same(const Scalar& a, const Scalar& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (!x || !y) return a == b;
  return std::isnan(*x) ? std::isnan(*y) : *x == *y && std::signbit(*x) == std::signbit(*y);
}

bool same(const DenseArray& a, const DenseArray& b) {
  for (std::int64_t i = 0; i < a.element_count(); ++i)
    if (!same(a.scalar(i), b.scalar(i))) return false;
  return true;
}

std::vector<DType> types_of_exit(const Region& region, int exit) {
  std::vector<DType> types;
  auto note = [&](const region::Leave& leave) {
    if (leave.exit != exit) return;
    types.clear();
    for (ValueId value : leave.values) types.push_back(region.type(value));
  };
  for (const region::Block& block : region.blocks) {
    for (const region::Instruction& instruction : block.body) note(instruction.leave);
    note(block.end.leave);
  }
  return types;
}

/// All forms do what the evaluator does, to the last bit.
void expect_same(const Region& region, const std::vector<Scalar>& inputs, const std::vector<DenseArray>& memories) {
  ASSERT_EQ(region::verify(region), std::vector<std::string>{}) << region::print(region);
  std::vector<DenseArray> expected = memories;
  const region::Left left = region::evaluate(region, inputs, expected);
  for (bool granting : {false, true}) {
    const Region chunks = region::in_chunks(region, granting);
    std::vector<std::string> faults = region::verify(chunks);
    std::erase_if(faults, [](const std::string& fault) { return fault.ends_with("is never taken"); });
    ASSERT_EQ(faults, std::vector<std::string>{}) << region::print(region) << region::print(chunks);
    std::vector<DenseArray> in_chunks = memories;
    const region::Left also = region::evaluate(chunks, inputs, in_chunks);
    ASSERT_EQ(also.exit, left.exit) << region::print(region) << region::print(chunks);
    for (std::size_t i = 0; i < left.values.size(); ++i) EXPECT_TRUE(same(also.values[i], left.values[i]));
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(in_chunks[i], expected[i]));
  }
  Region disjoint = region;
  disjoint.disjoint = true;
  for (const auto& [code, form] : {std::pair(region, LoopForm::Plain), std::pair(region, LoopForm::Chunks),
                                   std::pair(region, LoopForm::GrantingChunks),
                                   std::pair(disjoint, LoopForm::GrantingChunks)}) {
    std::vector<DenseArray> actual = memories;
    std::vector<std::uint64_t> cells(inputs.size()), out(64, 0xdeadbeef);
    for (std::size_t i = 0; i < inputs.size(); ++i) cells[i] = cell(region.type(region.inputs[i]), inputs[i]);
    std::vector<void*> places;
    for (std::size_t i = 0; i < actual.size(); ++i)
      places.push_back(region.memories[i].heap ? nullptr : actual[i].data.data());
    const volatile std::uint8_t never = 0;
    const CompiledRegion::Asked asked{&never, &never};
    const auto compiled = compile_region(code, target_for(""), form);
    RegionHeap heap;
    ASSERT_EQ(compiled->run(cells.data(), places.data(), out.data(), asked, heap), left.exit) << region::print(region);
    const std::vector<DType> types = types_of_exit(region, left.exit);
    for (std::size_t i = 0; i < types.size(); ++i)
      EXPECT_TRUE(same(scalar_of(types[i], out[i]), left.values[i])) << i << "\n" << region::print(region);
    for (std::size_t i = 0; i < actual.size(); ++i)
      EXPECT_TRUE(same(actual[i], expected[i])) << i << "\n" << region::print(region);
  }
}

template <class T>
DenseArray array(DType dtype, const std::vector<T>& values) {
  DenseArray result(dtype, {std::int64_t(values.size())});
  if (!values.empty()) std::memcpy(result.data.data(), values.data(), result.data.size());
  return result;
}

TEST(RegionCode, EditDistance) {
  // Two rows of a table: branches, minima and memory that is read back.
  const Region region = region::parse_region(R"(region @distance(%n: i64, %m: i64) memory a: i64, b: i64, row: i64 {
^0:
  %zero = constant 0 : i64
  %one = constant 1 : i64
  jump ^1(%zero)
^1(%i: i64):
  leave_if_asked else 1(%i)
  %more = lt %i, %n : bool
  branch %more, ^2, ^7
^2:
  %corner = load row[%zero] : i64
  %edge = checked_add %i, %one : i64 else 1(%i)
  store row[%zero], %edge
  jump ^3(%zero, %corner, %edge)
^3(%j: i64, %diagonal: i64, %left: i64):
  %inside = lt %j, %m : bool
  branch %inside, ^4, ^6
^4:
  %x = load a[%i] : i64
  %y = load b[%j] : i64
  %next = checked_add %j, %one : i64 else 1(%i)
  %above = load row[%next] : i64
  %same = eq %x, %y : bool
  branch %same, ^5(%diagonal), ^8
^5(%best: i64):
  store row[%next], %best
  jump ^3(%next, %above, %best)
^6:
  jump ^1(%edge)
^7:
  %answer = load row[%m] : i64
  exit 0(%answer)
^8:
  %low = minimum %above, %left : i64
  %least = minimum %low, %diagonal : i64
  %cost = checked_add %least, %one : i64 else 1(%i)
  jump ^5(%cost)
})");
  const auto word = [](const char* text) { return std::vector<std::int64_t>(text, text + std::strlen(text)); };
  for (auto [a, b] : {std::pair("kitten", "sitting"), std::pair("", "abc"), std::pair("flaw", "lawn")}) {
    std::vector<std::int64_t> row;
    for (std::size_t j = 0; j <= std::strlen(b); ++j) row.push_back(std::int64_t(j));
    expect_same(region, {std::int64_t(std::strlen(a)), std::int64_t(std::strlen(b))},
                {array(DType::I64, word(a)), array(DType::I64, word(b)), array(DType::I64, row)});
  }
}

TEST(RegionCode, NarrowIntegersFunctionsAndWhatIsReported) {
  const Region region =
      region::parse_region(R"(region @f(%a: i8, %b: i8, %c: u64, %d: u64, %x: f64, %y: f64, %n: i64 natural) {
^0:
  %sum = checked_add %a, %b : i8 else 1(%a)
  %product = checked_mul %c, %d : u64 else 2(%sum)
  %less = checked_sub %product, %d : u64 else 3(%product)
  %power = call pow(%x, %y) : f64
  %sine = call sin(%power) : f64
  %quotient = div %x, %y : f64
  leave_if_reported %quotient of %x, %y else 4(%quotient)
  %next = add_no_wrap %n, %n : i64
  exit 0(%less, %power, %sine, %quotient, %next)
})");
  EXPECT_EQ(region::print(region::parse_region(region::print(region))), region::print(region));
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [a, b] : {std::pair(3, 4), std::pair(100, 28), std::pair(-100, -29)})
    for (const auto& [c, d] : {std::pair(5ull, 7ull), std::pair(1ull << 40, 1ull << 40), std::pair(0ull, 1ull)})
      for (const auto& [x, y] :
           {std::pair(1.5, 2.5), std::pair(1.0, 0.0), std::pair(0.0, 0.0), std::pair(infinity, 2.0),
            std::pair(infinity, infinity), std::pair(nan, 1.0), std::pair(1e300, 1e-300)})
        expect_same(region,
                    {std::int64_t(a), std::int64_t(b), std::uint64_t(c), std::uint64_t(d), x, y, std::int64_t(5)}, {});
}

TEST(RegionCode, OneLookAtSeveralResults) {
  const Region region = region::parse_region(R"(region @f(%a: f64, %b: f64, %c: f64, %d: f64) {
^0:
  %product = mul %a, %b : f64
  %sum = add %product, %c : f64
  %quotient = div %sum, %d : f64
  leave_if_reported %quotient of %sum, %d and %sum of %product, %c and %product of %a, %b else 1(%a)
  exit 0(%quotient)
})");
  EXPECT_EQ(region::print(region::parse_region(region::print(region))), region::print(region));
  EXPECT_EQ(region::verify(region), std::vector<std::string>{});
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double cases[][4] = {{1.5, 2, 3, 4},
                             {1e300, 1e300, 1, 2},
                             {1e300, 1e300, -infinity, 2},
                             {1e300, -1e300, infinity, 2},
                             {1, 2, 3, 0},
                             {0, 1, 0, 0},
                             {infinity, 0, 1, 2},
                             {infinity, 1, 2, infinity},
                             {infinity, 1, 2, 3},
                             {nan, 1, 2, 0},
                             {1, 2, nan, 3},
                             {1, 2, 3, nan},
                             {1e300, 1e300, 1, infinity},
                             {1, 2, infinity, 2},
                             {infinity, 1, -infinity, 1},
                             {-0.0, 1, 0, 5}};
  for (const auto& [a, b, c, d] : cases) expect_same(region, {a, b, c, d}, {});
}

TEST(RegionCode, ArraysThatARegionMakes) {
  // The sum of x * k - 1 over every other element, by way of an array on the heap; left where it comes to infinity.
  const Region region = region::parse_region(R"(region @f(%n: i64 natural, %k: f64) memory x: f64, heap: f64 heap {
^0:
  %zero = constant 0 : i64
  %one = constant 1 : i64
  %two = constant 2 : i64
  %three = constant 3 : i64
  %eight = constant 8 : i64
  %minus = constant -1.0 : f64
  %less = opaque %minus : f64
  %bytes = mul %n, %eight : i64
  %made = run allocate(%bytes) : i64
  %none = eq %made, %zero : bool
  leave_if %none else 1(%n)
  %at = shift_right %made, %three : i64
  run clear_reports()
  jump ^1(%zero)
^1(%i: i64):
  %more = lt %i, %n : bool
  branch %more, ^2, ^3
^2:
  %element = load x[%i] : f64 apart 0
  %product = mul %element, %k : f64
  %value = add %product, %less : f64
  %place = add %at, %i : i64
  store heap[%place], %value apart 0
  %next = add_no_wrap %i, %one : i64
  jump ^1(%next)
^3:
  %reported = run reports() : i64
  %warns = ne %reported, %zero : bool
  leave_if %warns else 2(%reported)
  %from = address heap[%at] : i64
  %rounded = add %n, %one : i64
  %half = shift_right %rounded, %one : i64
  %sum = run sum_f64(%from, %half, %two) : f64
  %own = address x[%zero] : i64
  %where = run where_greatest_f64(%own, %n, %one) : i64
  run release(%made)
  run mark(%made)
  run sweep()
  exit 0(%sum, %where)
})");
  EXPECT_EQ(region::print(region::parse_region(region::print(region))), region::print(region));
  std::vector<double> x;
  for (int i = 0; i < 301; ++i) x.push_back(i * 37 % 101 / 7.0);
  for (double k : {2.0, -0.5, 1e308})
    for (std::int64_t n : {1, 7, 128, 301})
      expect_same(region, {n, k}, {array(DType::F64, x), DenseArray(DType::F64, {0})});
}

TEST(RegionCode, LeavesAsAsked) {
  const Region region = region::parse_region(R"(region @spin(%n: i64) {
^0:
  jump ^1(%n)
^1(%i: i64):
  leave_if_asked else 0(%i)
  jump ^1(%i)
})");
  ASSERT_EQ(region::verify(region), std::vector<std::string>{});
  const auto compiled = compile_region(region, target_for(""), LoopForm::Chunks);
  const std::uint64_t input = 7;
  std::uint64_t out = 0;
  const volatile std::uint8_t no = 0, yes = 1;
  RegionHeap heap;
  for (const CompiledRegion::Asked& asked : {CompiledRegion::Asked{&yes, &no}, CompiledRegion::Asked{&no, &yes}}) {
    EXPECT_EQ(compiled->run(&input, nullptr, &out, asked, heap), 0);
    EXPECT_EQ(std::exchange(out, 0), 7u);
  }
}

/// Nested loops and branches over scalars and memory of several dtypes.
class RandomRegion {
 public:
  explicit RandomRegion(unsigned seed) : random_(seed) {}

  Region make() {
    region_.name = "f";
    for (DType dtype : {DType::I64, DType::F64, DType::F32, DType::I32, DType::Bool, DType::U8}) {
      region_.inputs.push_back(region_.new_value(dtype));
      known_.push_back(region_.inputs.back());
    }
    region_.memories = {{"x", DType::F64}, {"k", DType::I32}, {"b", DType::U8}};
    region_.blocks.emplace_back();
    statements(0);
    exit();
    region_.exits = exits_;
    return std::move(region_);
  }

 private:
  int pick(int count) { return int(random_() % unsigned(count)); }
  region::Block& block() { return region_.blocks[std::size_t(at_)]; }

  ValueId any(DType dtype) {
    std::vector<ValueId> found;
    for (ValueId value : known_)
      if (region_.type(value) == dtype) found.push_back(value);
    if (!found.empty() && pick(8)) return found[std::size_t(pick(int(found.size())))];
    region::Instruction constant{};
    constant.code = region::Code::Constant;
    constant.constant =
        scalar_array(dtype, std::int64_t(pick(7) - (is_unsigned_integer(dtype) || dtype == DType::Bool ? 0 : 3)))
            .scalar(0);
    return add(std::move(constant), dtype);
  }

  ValueId add(region::Instruction instruction, DType dtype) {
    instruction.result = region_.new_value(dtype);
    block().body.push_back(instruction);
    known_.push_back(instruction.result);
    return instruction.result;
  }

  region::Leave leave() {
    region::Leave result{exits_++, {}};
    for (int i = 0; i < 3; ++i) result.values.push_back(known_[std::size_t(pick(int(known_.size())))]);
    return result;
  }

  ValueId pointwise(Op op, std::vector<ValueId> operands, DType result) {
    region::Instruction made{};
    made.code = region::Code::Pointwise;
    made.op = op;
    made.operands = std::move(operands);
    return add(std::move(made), result);
  }

  /// Within the four elements of each memory.
  ValueId index() {
    const ValueId value = any(DType::I64);
    region::Instruction mask{};
    mask.code = region::Code::Constant;
    mask.constant = std::int64_t(3);
    return pointwise(Op::bit_and, {value, add(std::move(mask), DType::I64)}, DType::I64);
  }

  void operation() {
    constexpr DType kTypes[] = {DType::I64, DType::F64, DType::F32, DType::I32, DType::U8};
    const DType dtype = kTypes[pick(5)];
    switch (pick(9)) {
      case 0: {
        region::Instruction checked{};
        checked.code = region::Code(int(region::Code::CheckedAdd) + pick(3));
        checked.operands = {any(DType::I64), any(DType::I64)};
        checked.leave = leave();
        add(std::move(checked), DType::I64);
        return;
      }
      case 1: {
        region::Instruction load{};
        load.code = region::Code::Load;
        load.operands = {index()};
        load.memory = pick(3);
        add(std::move(load), region_.memories[std::size_t(load.memory)].dtype);
        return;
      }
      case 2: {
        region::Instruction store{};
        store.code = region::Code::Store;
        store.memory = pick(3);
        const ValueId stored = any(region_.memories[std::size_t(store.memory)].dtype);
        store.operands = {index(), stored};
        block().body.push_back(std::move(store));
        return;
      }
      case 3: pointwise(Op::cast, {any(dtype)}, kTypes[is_float(dtype) ? 1 + pick(2) : pick(5)]); return;
      case 4: {
        constexpr Op kCompare[] = {Op::lt, Op::le, Op::eq, Op::ne, Op::gt, Op::ge};
        pointwise(kCompare[pick(6)], {any(dtype), any(dtype)}, DType::Bool);
        return;
      }
      case 5: pointwise(Op::where, {any(DType::Bool), any(dtype), any(dtype)}, dtype); return;
      case 6: {
        region::Instruction leave_if{};
        leave_if.code = region::Code::LeaveIf;
        const ValueId a = any(DType::Bool), b = any(DType::Bool);
        leave_if.operands = {pointwise(Op::bit_and, {a, b}, DType::Bool)};
        leave_if.leave = leave();
        block().body.push_back(std::move(leave_if));
        return;
      }
      default: {
        constexpr Op kBinary[] = {Op::add, Op::sub, Op::mul, Op::maximum, Op::minimum};
        pointwise(kBinary[pick(5)], {any(dtype), any(dtype)}, dtype);
        return;
      }
    }
  }

  int new_block() {
    region_.blocks.emplace_back();
    return int(region_.blocks.size()) - 1;
  }

  void branch(int depth) {
    const DType dtype = pick(2) ? DType::F64 : DType::I64;
    const ValueId condition = any(DType::Bool), before = any(dtype);
    const auto outside = known_;
    const int from = at_, yes = new_block(), no = new_block(), join = new_block();
    region_.blocks[std::size_t(from)].end = {region::Terminator::Kind::Branch, condition, {yes, {}}, {no, {}}, {}};
    const ValueId joined = region_.new_value(dtype);
    region_.blocks[std::size_t(join)].parameters = {joined};
    for (int side : {yes, no}) {
      known_ = outside;
      at_ = side;
      statements(depth + 1);
      const ValueId passed = pick(3) ? any(dtype) : before;
      block().end = {region::Terminator::Kind::Jump, {}, {join, {passed}}, {}, {}};
    }
    known_ = outside;
    known_.push_back(joined);
    at_ = join;
  }

  region::Instruction number(std::int64_t value) {
    region::Instruction made{};
    made.code = region::Code::Constant;
    made.constant = value;
    return made;
  }

  void leave_where(ValueId condition) {
    region::Instruction leave_if{};
    leave_if.code = region::Code::LeaveIf;
    leave_if.operands = {condition};
    leave_if.leave = leave();
    block().body.push_back(std::move(leave_if));
  }

  ValueId sum(ValueId a, ValueId b) {
    region::Instruction made{};
    made.code = pick(2) ? region::Code::CheckedAdd : region::Code::CheckedSub;
    made.operands = {a, b};
    made.leave = leave();
    return add(std::move(made), DType::I64);
  }

  /// An index that depends on the pass, looked at as indices of arrays are, and used.
  void index_in_pass(ValueId i, ValueId size) {
    ValueId index = i;
    if (pick(2)) {
      region::Instruction times = number(1 + pick(3));
      region::Instruction made{};
      made.code = region::Code::CheckedMul;
      made.operands = {index, add(std::move(times), DType::I64)};
      made.leave = leave();
      index = add(std::move(made), DType::I64);
    }
    if (pick(2)) index = sum(index, add(number(pick(4)), DType::I64));
    const ValueId zero = add(number(0), DType::I64);
    if (pick(2)) {
      const ValueId negative = pointwise(Op::lt, {index, zero}, DType::Bool);
      index = pointwise(Op::where, {negative, pointwise(Op::add, {index, size}, DType::I64), index}, DType::I64);
    }
    leave_where(pointwise(Op::ge, {pointwise(Op::cast, {index}, DType::U64), pointwise(Op::cast, {size}, DType::U64)},
                          DType::Bool));
    region::Instruction load{};
    load.code = region::Code::Load;
    load.operands = {pointwise(Op::bit_and, {index, add(number(3), DType::I64)}, DType::I64)};
    load.memory = pick(3);
    add(std::move(load), region_.memories[std::size_t(load.memory)].dtype);
  }

  void loop(int depth) {
    const ValueId start = any(DType::F64), counted = any(DType::I64);
    constexpr int kTrips[] = {0, 3, 9, 40, 40, 3000};
    const int trips = kTrips[pick(depth > 0 ? 4 : 6)], by = 1 + pick(3);
    const bool down = pick(3) == 0;
    const ValueId from = add(number(down ? trips : 0), DType::I64), step = add(number(down ? -by : by), DType::I64),
                  end = add(number(down ? 0 : trips), DType::I64), size = add(number(trips + pick(5)), DType::I64);
    const auto outside = known_;
    const int header = new_block(), body = new_block(), after = new_block();
    block().end = {region::Terminator::Kind::Jump, {}, {header, {from, start, counted}}, {}, {}};
    const ValueId i = region_.new_value(DType::I64), carried = region_.new_value(DType::F64),
                  count = region_.new_value(DType::I64);
    region_.blocks[std::size_t(header)].parameters = {i, carried, count};
    at_ = header;
    known_.insert(known_.end(), {i, carried, count});
    const ValueId inside =
        pointwise(down ? (pick(2) ? Op::gt : Op::ge) : (pick(2) ? Op::lt : Op::le), {i, end}, DType::Bool);
    block().end = {region::Terminator::Kind::Branch, inside, {body, {}}, {after, {}}, {}};
    const auto headers = known_;
    at_ = body;
    if (pick(2)) index_in_pass(i, size);
    statements(depth + 1);
    if (pick(4)) index_in_pass(i, size);
    ValueId counted_on = count;
    if (pick(2)) counted_on = sum(count, add(number(pick(9)), DType::I64));
    if (pick(3)) {
      region::Instruction asked{};
      asked.code = region::Code::LeaveIfAsked;
      asked.leave = leave();
      block().body.push_back(std::move(asked));
    }
    const ValueId next = pointwise(Op::add, {i, step}, DType::I64), carry = any(DType::F64);
    block().end = {region::Terminator::Kind::Jump, {}, {header, {next, carry, counted_on}}, {}, {}};
    known_ = headers;
    at_ = after;
  }

  void statements(int depth) {
    for (int i = 0, count = 2 + pick(5); i < count; ++i) {
      if (depth < 3 && pick(5) == 0) branch(depth);
      else if (depth < 3 && pick(5) == 0) loop(depth);
      else operation();
    }
  }

  void exit() { block().end = {region::Terminator::Kind::Exit, {}, {}, {}, leave()}; }

  std::mt19937 random_;
  Region region_;
  std::vector<ValueId> known_;  // defined wherever the present block is reached
  int at_ = 0, exits_ = 0;
};

TEST(RegionCode, RandomRegions) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Region region = RandomRegion(seed).make();
    SCOPED_TRACE(seed);
    EXPECT_EQ(region::print(region::parse_region(region::print(region))), region::print(region));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<DenseArray> memories{array<double>(DType::F64, {0.5, -2, nan, 1e300}),
                                           array<std::int32_t>(DType::I32, {3, -1, INT32_MIN, 7}),
                                           array<std::uint8_t>(DType::U8, {0, 1, 128, 255})};
    expect_same(region, {std::int64_t(seed) - 3, 0.25, -1.5, std::int64_t(-9), bool(seed % 2), std::uint64_t(200)},
                memories);
    expect_same(region, {INT64_MAX, -0.0, 3e38, std::int64_t(INT32_MAX), true, std::uint64_t(0)}, memories);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

/// The text of a loop over elements with checks that depend on data, stores, sums and totals in memory.
class RandomLoop {
 public:
  explicit RandomLoop(unsigned seed) : random_(seed) {}

  std::string make() {
    for (int statements = 3 + pick(6); statements > 0; --statements) statement();
    const std::string sum = pick(2) ? reported(pick(4) ? "add" : "mul", "%s", floats_.back(), !pick(4)) : "%s";
    const std::string count = pick(2) ? checked("%t", integers_.back()) : "%t";
    line("leave_if_asked else 1" + leave());
    const std::string step = pick(3) ? "%one" : "%by";
    const auto go_on = [&] {
      const std::string next = name();
      line(next + " = checked_add %i, " + step + " : i64 else 1" + leave());
      line("jump ^1(" + next + ", " + sum + ", " + count + ")");
    };
    if (pick(2)) store_either_way(go_on);
    else go_on();
    return "region @f(%n: i64 natural, %size: i64 natural, %first: f64, %start: i64, %by: i64) "
           "memory x: f64, y: f64, k: i64, l: i64 {\n"
           "^0:\n  %zero = constant 0 : i64\n  %one = constant 1 : i64\n  %half = constant 0.5 : f64\n"
           "  jump ^1(%zero, %first, %start)\n"
           "^1(%i: i64, %s: f64, %t: i64):\n  %more = lt %i, %n : bool\n  branch %more, ^3, ^2\n"
           "^2:\n  exit 0(%i, %s, %t)\n^3:\n" + text_ + "}";
  }

 private:
  int pick(int count) { return int(random_() % unsigned(count)); }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  std::string name() { return "%v" + std::to_string(names_++); }
  std::string a(const std::vector<std::string>& of) { return of[std::size_t(pick(int(of.size())))]; }
  std::string leave() const { return "(%i, %s, %t, " + floats_.back() + ", " + integers_.back() + ")"; }

  /// A place in a memory: one, or what is more than the number of the pass.
  int place() { return pick(3) == 0 ? -1 : pick(2) ? pick(3) : 0; }

  /// An index that is asked to be in range.
  std::string index() { return index(place()); }
  std::string index(int place) {
    std::string at = "%i";
    if (place < 0) at = "%zero";
    else if (place > 0 || pick(2)) {
      const std::string by = name(), sum = name();
      line(by + " = constant " + std::to_string(place) + " : i64");
      line(sum + " = add %i, " + by + " : i64");
      at = sum;
    }
    const std::string low = name(), high = name(), out = name();
    line(low + " = cast " + at + " : u64");
    line(high + " = cast %size : u64");
    line(out + " = ge " + low + ", " + high + " : bool");
    line("leave_if " + out + " else 1" + leave());
    return at;
  }

  std::string reported(const std::string& op, const std::string& x, const std::string& y, bool unreported = false) {
    const std::string made = name();
    line(made + " = " + op + " " + x + ", " + y + " : f64");
    if (!unreported) line("leave_if_reported " + made + " of " + x + ", " + y + " else 1" + leave());
    return made;
  }

  std::string checked(const std::string& x, const std::string& y) {
    const std::string made = name();
    const std::string does = pick(3) ? "add " : pick(2) ? "sub " : "mul ";
    line(made + " = checked_" + does + x + ", " + y + " : i64 else 1" + leave());
    return made;
  }

  /// In some passes, or in all.
  void store(const std::string& memory, const std::string& at, const std::string& value) {
    const std::string stores = "store " + memory + "[" + at + "], " + value;
    if (pick(2)) return line(stores);
    const std::string picked = name(), put = "^" + std::to_string(++blocks_), on = "^" + std::to_string(++blocks_);
    line(picked + " = lt " + floats_.back() + ", " + a(floats_) + " : bool");
    line("branch " + picked + ", " + put + ", " + on);
    text_ += put + ":\n";
    line(stores);
    line("jump " + on);
    text_ += on + ":\n";
  }

  /// Some element, or two, in each of two or three ways that a pass may take.
  void store_either_way(const std::function<void()>& go_on) {
    const int ways = 2 + pick(2), first = place(), second = pick(3) ? -2 : place();
    const bool of_x = pick(2), of_k = pick(2);
    for (int way = 0; way < ways; ++way) {
      if (way + 1 < ways) {
        const std::string picked = name(), put = "^" + std::to_string(++blocks_), on = "^" + std::to_string(++blocks_);
        line(picked + " = lt " + a(floats_) + ", " + a(floats_) + " : bool");
        line("branch " + picked + ", " + put + ", " + on);
        text_ += put + ":\n";
        store_one(of_x ? "x" : "y", first, floats_);
        if (second != -2) store_one(of_k ? "x" : "k", second, of_k ? floats_ : integers_);
        go_on();
        text_ += on + ":\n";
        continue;
      }
      store_one(of_x ? "x" : "y", pick(8) ? first : place(), floats_);
      if (second != -2) store_one(of_k ? "x" : "k", second, of_k ? floats_ : integers_);
      go_on();
    }
  }
  void store_one(const std::string& memory, int place, const std::vector<std::string>& values) {
    const std::string at = index(place);
    line("store " + memory + "[" + at + "], " + a(values));
  }

  void statement() {
    static const std::vector<std::string> kFloat{"add", "sub", "mul", "div", "minimum"};
    switch (pick(9)) {
      case 0: case 1: {
        const std::string at = index(), made = name();
        line(made + " = load " + (pick(2) ? "x" : "y") + "[" + at + "] : f64");
        floats_.push_back(made);
        return;
      }
      case 2: {
        const std::string at = index(), made = name();
        line(made + " = load " + (pick(2) ? "k" : "l") + "[" + at + "] : i64");
        integers_.push_back(made);
        return;
      }
      case 3: floats_.push_back(reported(a(kFloat), a(floats_), a(floats_), !pick(4))); return;
      case 4: integers_.push_back(checked(a(integers_), a(integers_))); return;
      case 5: return store(pick(2) ? "x" : "y", index(), a(floats_));
      case 6: return store(pick(2) ? "k" : "l", index(), a(integers_));
      case 7: {
        store_either_way([&] { line("jump ^on"); });
        const std::string on = "^" + std::to_string(++blocks_);  // blocks are numbered in their order
        for (std::size_t at; (at = text_.find("^on")) != std::string::npos;) text_.replace(at, 3, on);
        text_ += on + ":\n";
        return;
      }
      default: {
        if (pick(2)) {  // a total
          const std::string at = index(), before = name();
          line(before + " = load y[" + at + "] : f64");
          return line("store y[" + at + "], " + reported(pick(3) ? "add" : "sub", before, a(floats_)));
        }
        const std::string is = name(), is_not = name();
        line(is + " = is_finite " + a(floats_) + " : bool");
        line(is_not + " = logical_not " + is + " : bool");
        line("leave_if " + is_not + " else 1" + leave());
      }
    }
  }

  std::mt19937 random_;
  std::string text_;
  std::vector<std::string> floats_{"%s", "%half"}, integers_{"%t", "%one"};
  int names_ = 0, blocks_ = 3;
};

/// What a stretch of passes takes for granted may not be so in any of them: then all that it has stored is undone.
TEST(RegionCode, LoopsThatTakeForGrantedWhatIsNotSo) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  int granting = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Region region = region::parse_region(RandomLoop(seed).make());
    std::mt19937 random(seed);
    const auto pick = [&](int count) { return int(random() % unsigned(count)); };
    const int n = pick(4) ? 300 + pick(900) : pick(20), size = n + pick(4);
    const int rare = pick(3) ? 0 : n + 1;  // before it there is nothing rare
    std::vector<DenseArray> memories;
    for (int memory = 0; memory < 2; ++memory) {
      std::vector<double> values;
      for (int i = 0; i < size; ++i) {
        const double edges[] = {nan, infinity, -infinity, 1e308, 0.0};
        values.push_back(i >= rare && pick(400) == 0 ? edges[pick(5)] : (pick(41) - 20) / 16.0);
      }
      memories.push_back(array(DType::F64, values));
    }
    for (int memory = 0; memory < 2; ++memory) {
      std::vector<std::int64_t> values;
      for (int i = 0; i < size; ++i) {
        const std::int64_t edges[] = {1ll << 62, INT64_MIN, 1ll << 33, INT64_MAX};
        values.push_back(i >= rare && pick(400) == 0 ? edges[pick(4)] : pick(9) - 4);
      }
      memories.push_back(array(DType::I64, values));
    }
    granting += region::in_chunks(region, true).memories.size() > region.memories.size();
    SCOPED_TRACE(seed);
    const std::int64_t start = pick(8) ? 3 : 1ll << 61;
    const std::int64_t by = pick(8) ? 1 + pick(5) : pick(2) ? 1ll << 40 : -1;  // the last: an index out of range
    expect_same(region, {std::int64_t(n), std::int64_t(size), pick(8) ? 1.5 : nan, start, by}, memories);
    if (HasFailure()) return;
  }
  EXPECT_GT(granting, 80);
}

/// Loops of which the inner ones' passes are counted by constants: i from 0 to n, m from 0 to 2 or not at all, k. The first
/// pass may come to the innermost by a way of its own, that may be left early, and passes may store what others load.
std::string loops_around_a_short_one(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int count) { return int(random() % unsigned(count)); };
  const bool breaks = pick(3) == 0, stores = pick(2), enters = pick(2), down = pick(4) == 0, nested = pick(2);
  const int step = (1 + pick(3)) * (down ? -1 : 1), begin = pick(3), passes = pick(5) ? 1 + pick(4) : pick(11);
  const int end = begin + passes * step - (pick(2) && passes > 0 ? step / 2 : 0);
  const auto constant = [](const char* name, int value) {
    return "  %" + std::string(name) + " = constant " + std::to_string(value) + " : i64\n";
  };
  std::string text = "region @f(%n: i64 natural, %size: i64 natural, %first: f64) memory x: f64, y: f64 {\n^0:\n"
      "  %half = constant 0.5 : f64\n" + constant("zero", 0) + constant("one", 1) + constant("two", 2) +
      constant("begin", begin) + constant("other", begin + (passes > 1 && pick(2) ? step : 0)) + constant("end", end) +
      constant("step", step) + constant("shift", down ? 40 : 0);
  text += enters ? "  jump ^3(%other, %first, %zero, %zero)\n" : "  jump ^1(%zero, %first)\n";
  text += "^1(%i: i64, %s: f64):\n  %more = lt %i, %n : bool\n  branch %more, ^2, ^6\n^2:\n";
  text += nested ? "  jump ^8(%zero, %s, %i)\n" : "  jump ^3(%begin, %s, %i, %zero)\n";
  text += "^3(%k: i64, %t: f64, %j: i64, %m: i64):\n  %again = " + std::string(down ? "gt" : "lt") +
          " %k, %end : bool\n  branch %again, ^4, ^5(%t)\n"
          "^4:\n  %near = add %j, %k : i64\n  %at = add %near, %shift : i64\n  %low = cast %at : u64\n  %high = cast %size : u64\n"
          "  %out = ge %low, %high : bool\n  leave_if %out else 1(%k, %t, %j)\n  %a = load x[%at] : f64\n"
          "  %b = mul %a, %half : f64\n  %u = add %t, %b : f64\n  leave_if_reported %u of %t, %b else 2(%k, %t, %j)\n";
  if (stores) text += pick(2) ? "  store x[%at], %u\n" : "  store y[%at], %b\n";
  text += "  leave_if_asked else 3(%k, %u, %j)\n  %next = checked_add %k, %step : i64 else 4(%k, %u, %j)\n"
          "  %enough = gt %u, %half : bool\n";
  text += breaks ? "  branch %enough, ^5(%u), ^7\n" : "  jump ^7\n";
  const std::string behind =
      "  %small = mul %w, %half : f64\n  %beyond = cast %j : u64\n  %all = cast %size : u64\n"
      "  %none = ge %beyond, %all : bool\n  leave_if %none else 5(%w, %j)\n  store y[%j], %small\n"
      "  leave_if_asked else 6(%w, %j)\n  %on = checked_add %j, %one : i64 else 7(%w, %j)\n  jump ^1(%on, %small)\n";
  text += "^5(%w: f64):\n" + (nested ? "  %m1 = add %m, %one : i64\n  jump ^8(%m1, %w, %j)\n" : behind);
  text += "^6:\n  exit 0(%i, %s)\n^7:\n  jump ^3(%next, %u, %j, %m)\n";
  if (!nested) return text + "}";
  std::string outer = behind;
  for (const auto& [from, to] : {std::pair("%w", "%w2"), std::pair("%j", "%j2")})
    for (std::size_t at = 0; (at = outer.find(from, at)) != std::string::npos; at += 3) outer.replace(at, 2, to);
  return text + "^8(%m2: i64, %w2: f64, %j2: i64):\n  %once = lt %m2, %two : bool\n  branch %once, ^9, ^10\n"
                "^9:\n  jump ^3(%begin, %w2, %j2, %m2)\n^10:\n" + outer + "}";
}

TEST(RegionCode, ShortLoopsAreTheirPassesOneAfterTheOther) {
  int unrolled = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Region region = region::parse_region(loops_around_a_short_one(seed));
    std::mt19937 random(seed);
    const auto pick = [&](int count) { return int(random() % unsigned(count)); };
    const int n = pick(3) ? 200 + pick(900) : pick(12), size = n + 60 - (pick(5) ? 0 : pick(60));
    const int rare = pick(2) ? 400 : 1 << 20;
    std::vector<DenseArray> memories;
    for (int memory = 0; memory < 2; ++memory) {
      std::vector<double> values;
      for (int i = 0; i < n + 60; ++i) values.push_back(pick(rare) == 0 ? 1.7e308 : (pick(41) - 20) / 16.0);
      memories.push_back(array(DType::F64, values));
    }
    SCOPED_TRACE(seed);
    const auto loads = [](const Region& of) {
      int count = 0;
      for (const region::Block& block : of.blocks)
        for (const region::Instruction& made : block.body) count += made.code == region::Code::Load && made.memory == 0;
      return count;
    };
    unrolled += loads(region::in_chunks(region, false)) > 4;
    expect_same(region, {std::int64_t(n), std::int64_t(size), 0.25}, memories);
    if (HasFailure()) return;
  }
  EXPECT_GT(unrolled, 40);
}

}  // namespace
}  // namespace fj::test
