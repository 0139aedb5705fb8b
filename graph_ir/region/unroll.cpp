#include "graph_ir/region/unroll.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph_ir/region/constants.h"
#include "graph_ir/region/flow.h"
#include "graph_ir/region/loop_form.h"
#include "runtime/base/error.h"

namespace fj::region {

namespace {

constexpr std::int64_t kMostPasses = 8;
constexpr std::size_t kMostOfALoop = 900, kMostOfAll = 6000;  // instructions that are made

class Unroller {
 public:
  explicit Unroller(Region& region) : region_(region) {}

  void run() {
    while (unroll_one()) {
      fold_constants(region_);
      while (enter_by_header() || give_ways_back()) {}
      give_loops_form(region_);
    }
  }

 private:
  Block& block(int at) { return region_.blocks[std::size_t(at)]; }

  /// False: there is no other.
  bool unroll_one() {
    const Flow flow(region_);
    const auto loops = innermost_loops(flow);
    if (loops.empty()) return false;
    const Constants constants(region_);
    for (const NaturalLoop& loop : loops) {
      const auto& parameters = block(loop.header).parameters;
      if (parameters.empty() || !seen_.insert(parameters[0].index).second) continue;
      const std::optional<Passes> passes = count_passes(loop, entries(loop, flow), constants);
      if (!passes) continue;
      std::size_t size = 0;
      for (int at : loop.blocks) size += block(at).body.size() + 1;
      size *= std::size_t(passes->count);
      if (size > kMostOfALoop || made_ + size > kMostOfAll || !pass_on_exits(region_, flow, loop)) continue;
      made_ += size;
      peel(loop, entries(loop, flow), *passes);
      return true;
    }
    return false;
  }

  /// A way to the header from outside of the loop, and what the header is given there.
  struct Entry {
    int from;
    bool yes;
    std::vector<ValueId> arguments;
  };
  /// Those that come by a block that does nothing begin before it: it may be where constants meet.
  std::vector<Entry> entries(const NaturalLoop& loop, const Flow& flow) {
    using Values = std::vector<ValueId>;
    std::vector<Entry> found;
    const std::function<void(int, const std::function<Values(const Values&)>&)> add = [&](int to, const auto& given) {
      for (int from : std::set<int>(flow.before(to).begin(), flow.before(to).end())) {
        if (std::find(loop.blocks.begin(), loop.blocks.end(), from) != loop.blocks.end()) continue;
        const Terminator& end = block(from).end;
        for (const bool yes : {true, false}) {
          const Target& target = yes ? end.yes : end.no;
          if (target.block != to) continue;
          const Values arguments = given(target.arguments);
          if (end.kind != Terminator::Kind::Jump || !block(from).body.empty() || !keeps_parameters(from, flow) ||
              from == to || flow.before(from).empty()) {
            found.push_back({from, yes, arguments});
            continue;
          }
          add(from, [&](const Values& outer) {
            Values made = arguments;
            const Values& parameters = block(from).parameters;
            for (ValueId& value : made)
              if (const auto at = std::find(parameters.begin(), parameters.end(), value); at != parameters.end())
                value = outer[std::size_t(at - parameters.begin())];
            return made;
          });
        }
      }
    };
    add(loop.header, [](const Values& given) { return given; });
    return found;
  }
  /// Nobody else uses what the block is given.
  bool keeps_parameters(int at, const Flow& flow) {
    const std::vector<ValueId>& parameters = block(at).parameters;
    bool keeps = true;
    const auto look = [&](ValueId value) {
      keeps = keeps && std::find(parameters.begin(), parameters.end(), value) == parameters.end();
    };
    for (int other : flow.order()) {
      if (other == at) continue;
      for (const Instruction& instruction : block(other).body) for_each_use(instruction, look);
      for_each_use(block(other).end, look);
    }
    return keeps;
  }

  /// A number of the header, which begins as a constant on each way there and grows by one.
  struct Passes {
    std::int64_t first, step, count;  // from the earliest beginning on
    std::vector<std::int64_t> begins;  // by entry
  };
  std::optional<Passes> count_passes(const NaturalLoop& loop, const std::vector<Entry>& ways,
                                     const Constants& constants) {
    const Terminator& end = block(loop.header).end;
    if (end.kind != Terminator::Kind::Branch) return std::nullopt;
    const auto is_inside = [&](int at) {
      return std::find(loop.blocks.begin(), loop.blocks.end(), at) != loop.blocks.end();
    };
    if (is_inside(end.yes.block) == is_inside(end.no.block)) return std::nullopt;
    const Makers makers(region_);
    const Instruction* const asks = makers(end.condition);
    if (asks == nullptr || asks->code != Code::Pointwise || asks->operands.size() != 2) return std::nullopt;
    const auto& parameters = block(loop.header).parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (region_.type(parameters[i]) != DType::I64) continue;
      std::vector<std::int64_t> begins;
      std::optional<std::int64_t> step;
      bool known = true;
      for (int from : loop.blocks)
        for (const Target* target : {&block(from).end.yes, &block(from).end.no}) {
          if (target->block != loop.header) continue;
          const auto grows = makers.change(target->arguments[i], parameters[i]);
          known = known && grows && *grows != 0 && (!step || step == grows);
          step = grows;
        }
      for (const Entry& entry : ways) {
        const auto begin = constants(entry.arguments[i]);
        known = known && begin && std::abs(*begin) <= kMostStep;
        if (begin) begins.push_back(*begin);
      }
      if (!known || begins.empty() || !step) continue;
      const auto [least, most] = std::minmax_element(begins.begin(), begins.end());
      const std::int64_t first = *step > 0 ? *least : *most;
      const auto is_between = [&](std::int64_t begin) { return (begin - first) % *step != 0; };
      if (std::any_of(begins.begin(), begins.end(), is_between)) continue;
      const auto is_grown = [&](ValueId value) { return makers.change(value, parameters[i]) == 0; };
      const bool straight = is_grown(asks->operands[0]);
      const auto bound = constants(asks->operands[straight ? 1 : 0]);
      if (!bound || (!straight && !is_grown(asks->operands[1]))) continue;
      for (std::int64_t passes = 0; passes <= kMostPasses; ++passes) {
        const std::int64_t number = first + passes * *step;
        const auto truth = straight ? Constants::compare(asks->op, false, number, *bound)
                                    : Constants::compare(asks->op, false, *bound, number);
        if (!truth) break;
        if (is_inside(*truth ? end.yes.block : end.no.block)) continue;
        const bool beyond = std::abs(*least - first) > passes * std::abs(*step) ||
                            std::abs(*most - first) > passes * std::abs(*step);
        return beyond ? std::nullopt : std::optional(Passes{first, *step, passes, std::move(begins)});
      }
    }
    return std::nullopt;
  }

  /// A copy for each pass before the loop, one behind the other, and one that asks whether there is another pass.
  void peel(const NaturalLoop& loop, const std::vector<Entry>& ways, const Passes& passes) {
    const std::size_t copies = std::size_t(passes.count) + 1;
    const std::size_t blocks = region_.blocks.size() + loop.blocks.size() * copies;
    std::vector<std::vector<int>> made(copies, std::vector<int>(blocks, -1));
    for (auto& copy : made)
      for (int at : loop.blocks) {
        copy[std::size_t(at)] = int(region_.blocks.size());
        region_.blocks.emplace_back();
      }
    for (std::size_t number = 0; number < made.size(); ++number) {
      std::vector<ValueId> values(region_.types.size());
      for (int at : loop.blocks) copy_block(at, made[number], values);  // each behind those that dominate it
      const int own = made[number][std::size_t(loop.header)];
      const int next = number + 1 < made.size() ? made[number + 1][std::size_t(loop.header)] : loop.header;
      for (int at : loop.blocks) {
        Terminator& end = block(made[number][std::size_t(at)]).end;
        for (Target* target : {&end.yes, &end.no})
          if (target->block == own) target->block = next;
      }
    }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Terminator& end = block(ways[i].from).end;
      const std::int64_t number = (passes.begins[i] - passes.first) / passes.step;
      (ways[i].yes ? end.yes : end.no) = {made[std::size_t(number)][std::size_t(loop.header)], ways[i].arguments};
    }
  }

  /// By block: the cycles of such it is part of; of blocks in none, a number of their own.
  std::vector<int> cycles(const std::vector<int>& blocks) const {
    std::vector<int> order(region_.blocks.size(), -1), low(order), cycle(order);
    std::vector<char> is_one(region_.blocks.size());
    for (int at : blocks) is_one[std::size_t(at)] = 1;
    std::vector<int> open;
    int number = 0;
    const auto visit = [&](const auto& self, int at) -> void {
      const auto i = std::size_t(at);
      order[i] = low[i] = number++;
      open.push_back(at);
      const Terminator& end = region_.blocks[i].end;
      for (int next : {end.yes.block, end.no.block}) {
        if (next < 0 || !is_one[std::size_t(next)]) continue;
        if (order[std::size_t(next)] < 0) self(self, next);
        if (cycle[std::size_t(next)] < 0) low[i] = std::min(low[i], low[std::size_t(next)]);
      }
      if (low[i] != order[i]) return;
      for (int met = -1; met != at; open.pop_back()) cycle[std::size_t(met = open.back())] = at;
    };
    for (int at : blocks)
      if (order[std::size_t(at)] < 0) visit(visit, at);
    return cycle;
  }

  /// The blocks from `begin` on until `header`, where all ways lead within the cycle; nothing: they do not, or there is
  /// a loop among them.
  std::optional<std::vector<int>> until(int begin, int header, const std::vector<int>& cycle) const {
    std::vector<int> found;
    std::vector<char> state(region_.blocks.size());  // 1: on the way that is being gone; 2: done
    std::size_t size = 0;
    const auto visit = [&](const auto& self, int at) -> bool {
      if (at < 0 || at == header || state[std::size_t(at)] == 2) return true;
      if (cycle[std::size_t(at)] != cycle[std::size_t(header)]) return false;
      if (std::exchange(state[std::size_t(at)], 1) == 1) return false;
      const Block& of = region_.blocks[std::size_t(at)];
      size += of.body.size() + 1;
      if (of.end.kind == Terminator::Kind::Exit || size > kMostOfALoop) return false;
      if (!self(self, of.end.yes.block) || !self(self, of.end.no.block)) return false;
      state[std::size_t(at)] = 2;
      found.push_back(at);
      return true;
    };
    if (!visit(visit, begin)) return std::nullopt;
    std::reverse(found.begin(), found.end());
    return found;
  }

  /// It asks something of a number that it, or one of the shared blocks, is given or makes.
  bool is_header(int at, const std::vector<int>& shared, const std::vector<int>& defined_in) {
    const Block& of = block(at);
    if (of.end.kind != Terminator::Kind::Branch) return false;
    const auto asks = std::find_if(of.body.begin(), of.body.end(), [&](const Instruction& made) {
      return made.result.valid() && made.result == of.end.condition;
    });
    return asks != of.body.end() && std::any_of(asks->operands.begin(), asks->operands.end(), [&](ValueId operand) {
             return region_.type(operand) == DType::I64 &&
                    (std::find(of.parameters.begin(), of.parameters.end(), operand) != of.parameters.end() ||
                     std::find(shared.begin(), shared.end(), defined_in[operand.index]) != shared.end());
           });
  }

  /// A number that it is given grows by a constant on a way back.
  bool counts(int at, const Flow& flow) {
    const Makers makers(region_);
    const std::vector<ValueId>& parameters = block(at).parameters;
    for (int from : flow.before(at))
      for (const Target* target : {&block(from).end.yes, &block(from).end.no})
        for (std::size_t i = 0; target->block == at && i < parameters.size(); ++i)
          if (region_.type(parameters[i]) == DType::I64 &&
              makers.change(target->arguments[i], parameters[i]).value_or(0) != 0)
            return true;
    return false;
  }

  /// The first pass of a loop may come to code that the others run as well, and so enter the loop behind its header: it
  /// gets that code for itself.
  bool enter_by_header() {
    const Flow flow(region_);
    const std::vector<int> cycle = cycles(flow.order()), defined_in = definitions(region_, flow);
    for (int begin : flow.order()) {
      std::vector<int> from;
      for (int before : flow.before(begin))
        if (flow.is_reached(before) && cycle[std::size_t(before)] != cycle[std::size_t(begin)]) from.push_back(before);
      if (from.empty() || from.size() == flow.before(begin).size() || counts(begin, flow)) continue;
      for (int header : flow.order()) {
        if (header == begin || cycle[std::size_t(header)] != cycle[std::size_t(begin)]) continue;
        if (block(header).end.kind != Terminator::Kind::Branch) continue;
        const auto shared = until(begin, header, cycle);
        if (!shared || !is_header(header, *shared, defined_in)) continue;
        return give_own_copy(*shared, from, defined_in);
      }
    }
    return false;
  }

  /// A pass of a loop and one of the loop around it may go back to one header by the same code: the outer one gets that
  /// for itself, so that it may have a header of its own.
  bool give_ways_back() {
    const Flow flow(region_);
    const std::vector<int> cycle = cycles(flow.order()), defined_in = definitions(region_, flow);
    for (int header : flow.order()) {
      const std::vector<int> loop = blocks_of_loop(header, flow);
      if (loop.empty()) continue;
      const std::vector<int> inner = cycles(loop);
      std::vector<char> is_behind(region_.blocks.size());  // a cycle within it
      std::vector<int> open;
      const auto add = [&](int at) {
        if (at < 0 || std::find(loop.begin(), loop.end(), at) == loop.end()) return;
        if (!std::exchange(is_behind[std::size_t(at)], 1)) open.push_back(at);
      };
      for (int at : loop)
        for (int next : {block(at).end.yes.block, block(at).end.no.block})
          if (next >= 0 && inner[std::size_t(next)] == inner[std::size_t(at)]) add(at);
      while (!open.empty()) {
        const Terminator& end = block(open.back()).end;
        open.pop_back();
        add(end.yes.block);
        add(end.no.block);
      }
      for (int begin : flow.order()) {
        if (!is_behind[std::size_t(begin)]) continue;
        std::vector<int> from;
        for (int before : flow.before(begin))
          if (is_behind[std::size_t(before)]) from.push_back(before);
        if (from.empty() || from.size() == flow.before(begin).size()) continue;
        const auto shared = until(begin, header, cycle);
        if (!shared) continue;
        return give_own_copy(*shared, from, defined_in);
      }
    }
    return false;
  }

  /// Without the header; empty: it is none.
  std::vector<int> blocks_of_loop(int header, const Flow& flow) const {
    std::vector<int> found, open;
    std::vector<char> seen(region_.blocks.size());
    seen[std::size_t(header)] = 1;
    const auto add = [&](int at) {
      if (std::exchange(seen[std::size_t(at)], 1)) return;
      found.push_back(at);
      open.push_back(at);
    };
    for (int from : flow.before(header))
      if (flow.dominates(header, from)) add(from);
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (int from : flow.before(at)) add(from);
    }
    return found;
  }

  /// To those that come `from` outside of it: a copy of the code up to the header. False: that is too much.
  bool give_own_copy(const std::vector<int>& shared, const std::vector<int>& from,
                     const std::vector<int>& defined_in) {
    for (int at : shared) made_ += block(at).body.size() + 1;
    if (made_ > kMostOfAll) return false;
    std::vector<int> copies(region_.blocks.size(), -1);
    for (int at : shared) {
      copies[std::size_t(at)] = int(region_.blocks.size());
      region_.blocks.emplace_back();
    }
    std::vector<ValueId> values(region_.types.size());
    for (int at : shared) copy_block(at, copies, values);
    for (int before : from)
      for (Target* target : {&block(before).end.yes, &block(before).end.no})
        if (target->block == shared.front()) target->block = copies[std::size_t(shared.front())];
    const Flow after(region_);
    for (std::uint32_t value = 0; value < values.size(); ++value)
      if (values[value].valid()) {
        const int at = defined_in[value];
        reach_uses({{at, ValueId{value}}, {copies[std::size_t(at)], values[value]}}, after);
      }
    return true;
  }

  /// Two blocks define a number now: where ways from both meet the block gets a parameter for it.
  void reach_uses(const std::map<int, ValueId>& made, const Flow& flow) {
    std::map<int, ValueId> begins;  // what it is where a block begins
    const auto at_end = [&](const auto& self, int at) -> ValueId {
      if (const auto found = made.find(at); found != made.end()) return found->second;
      if (const auto found = begins.find(at); found != begins.end()) return found->second;
      const std::vector<int>& before = flow.before(at);
      FJ_CHECK(!before.empty(), "a value before its definition");
      if (before.size() == 1) return begins[at] = self(self, before[0]);
      const ValueId parameter = region_.new_value(region_.type(made.begin()->second));
      begins[at] = parameter;
      block(at).parameters.push_back(parameter);
      for (int from : std::set<int>(before.begin(), before.end())) {
        const ValueId given = self(self, from);
        for (Target* target : {&block(from).end.yes, &block(from).end.no})
          if (target->block == at) target->arguments.push_back(given);
      }
      return parameter;
    };
    const auto is_it = [&](ValueId value) {
      return std::any_of(made.begin(), made.end(), [&](const auto& one) { return one.second == value; });
    };
    for (int at : flow.order()) {
      if (made.contains(at)) continue;
      bool uses = false;
      const auto look = [&](ValueId value) { uses = uses || is_it(value); };
      for (const Instruction& instruction : block(at).body) for_each_use(instruction, look);
      for_each_use(block(at).end, look);
      if (!uses) continue;
      const ValueId here = at_end(at_end, at);
      const auto renew = [&](ValueId& value) {
        if (is_it(value)) value = here;
      };
      for (Instruction& instruction : block(at).body) change_uses(instruction, renew);
      change_uses(block(at).end, renew);
    }
  }

  /// `copies`: by block; `values`: what is what in the copy.
  void copy_block(int at, const std::vector<int>& copies, std::vector<ValueId>& values) {
    const auto renew = [&](ValueId& value) {
      if (value.index < values.size() && values[value.index].valid()) value = values[value.index];
    };
    const auto define = [&](ValueId& value) {
      const ValueId fresh = region_.new_value(region_.type(value));
      values[value.index] = fresh;
      value = fresh;
    };
    Block copy = block(at);
    for (ValueId& parameter : copy.parameters) define(parameter);
    for (Instruction& instruction : copy.body) {
      change_uses(instruction, renew);
      if (instruction.result.valid()) define(instruction.result);
    }
    change_uses(copy.end, renew);
    for (Target* target : {&copy.end.yes, &copy.end.no})
      if (target->block >= 0 && copies[std::size_t(target->block)] >= 0)
        target->block = copies[std::size_t(target->block)];
    block(copies[std::size_t(at)]) = std::move(copy);
  }

  Region& region_;
  std::set<std::uint32_t> seen_;  // the first parameters of headers
  std::size_t made_ = 0;
};

}  // namespace

void unroll_short_loops(Region& region) { Unroller(region).run(); }

}  // namespace fj::region
