// Regions as text, and back.
#include <map>

#include "graph_ir/ops.h"
#include "graph_ir/parse.h"
#include "graph_ir/print.h"
#include "graph_ir/region/region.h"
#include "graph_ir/scanner.h"
#include "runtime/region_library.h"

namespace fj::region {
namespace {

constexpr std::string_view kChecked[] = {"checked_add", "checked_sub", "checked_mul"};
std::string_view checked_name(Code code) { return kChecked[int(code) - int(Code::CheckedAdd)]; }

class Printer {
 public:
  explicit Printer(const Region& region) : region_(region), names_(region.types.size(), "%?") {}

  std::string print() {
    for (ValueId input : region_.inputs) define(input);
    for (const Block& block : region_.blocks) {
      for (ValueId parameter : block.parameters) define(parameter);
      for (const Instruction& instruction : block.body)
        if (instruction.result.valid()) define(instruction.result);
    }
    std::string out = "region @" + region_.name + "(" + typed(region_.inputs) + ")";
    for (std::size_t i = 0; i < region_.memories.size(); ++i)
      out +=
          (i ? ", " : " memory ") + region_.memories[i].name + ": " + std::string(fj::name(region_.memories[i].dtype)) +
          (region_.memories[i].heap ? " heap" : "") +
          (region_.memories[i].scratch ? " scratch " + std::to_string(region_.memories[i].scratch) : "");
    out += region_.disjoint ? " disjoint {\n" : " {\n";
    for (std::size_t i = 0; i < region_.blocks.size(); ++i) {
      const Block& block = region_.blocks[i];
      out += "^" + std::to_string(i) + (block.parameters.empty() ? "" : "(" + typed(block.parameters) + ")") + ":\n";
      for (const Instruction& instruction : block.body) out += "  " + text(instruction) + "\n";
      out += "  " + text(block.end) + "\n";
    }
    return out + "}\n";
  }

 private:
  void define(ValueId value) { names_[value.index] = "%" + std::to_string(next_++); }
  const std::string& name(ValueId value) const {
    static const std::string none = "%?";
    return value.index < names_.size() ? names_[value.index] : none;
  }

  std::string list(const std::vector<ValueId>& values) const {
    std::string out;
    for (ValueId value : values) out += (out.empty() ? "" : ", ") + name(value);
    return out;
  }

  std::string typed(const std::vector<ValueId>& values) const {
    std::string out;
    for (ValueId value : values)
      out += (out.empty() ? "" : ", ") + name(value) + ": " + std::string(fj::name(region_.type(value))) +
             (region_.is_natural(value) ? " natural" : "");
    return out;
  }

  std::string text(const Leave& leave) const { return std::to_string(leave.exit) + "(" + list(leave.values) + ")"; }

  std::string text(const Target& target) const {
    return "^" + std::to_string(target.block) + (target.arguments.empty() ? "" : "(" + list(target.arguments) + ")");
  }

  std::string text(const Instruction& instruction) const {
    const std::string memory = instruction.memory >= 0 ? region_.memories[std::size_t(instruction.memory)].name : "";
    const std::string apart = instruction.apart >= 0 ? " apart " + std::to_string(instruction.apart) : "";
    if (instruction.code == Code::Store)
      return "store " + memory + "[" + name(instruction.operands[0]) + "], " + name(instruction.operands[1]) + apart;
    if (instruction.code == Code::LeaveIf)
      return "leave_if " + name(instruction.operands[0]) + " else " + text(instruction.leave);
    if (instruction.code == Code::LeaveIfReported) {
      std::string out;
      for_each_report(instruction, [&](ValueId result, std::span<const ValueId> operands) {
        out += (out.empty() ? "leave_if_reported " : " and ") + name(result) + " of " +
               list({operands.begin(), operands.end()});
      });
      return out + " else " + text(instruction.leave);
    }
    if (instruction.code == Code::LeaveIfAsked) return "leave_if_asked else " + text(instruction.leave);
    if (instruction.code == Code::Run) {
      const std::string run = "run " + std::string(region_library()[std::size_t(instruction.function)].name) + "(" +
                              list(instruction.operands) + ")";
      if (!instruction.result.valid()) return run;
      return name(instruction.result) + " = " + run + " : " + std::string(fj::name(region_.type(instruction.result)));
    }
    std::string out = name(instruction.result) + " = ";
    switch (instruction.code) {
      case Code::Constant: out += "constant " + fj::text(instruction.constant); break;
      case Code::Pointwise: out += std::string(fj::name(instruction.op)) + " " + list(instruction.operands); break;
      case Code::AddNoWrap: out += "add_no_wrap " + list(instruction.operands); break;
      case Code::Opaque: out += "opaque " + list(instruction.operands); break;
      case Code::Call:
        out += "call " + std::string(functions()[std::size_t(instruction.function)].name) + "(" +
               list(instruction.operands) + ")";
        break;
      case Code::Load: out += "load " + memory + "[" + name(instruction.operands[0]) + "]"; break;
      case Code::Address: out += "address " + memory + "[" + name(instruction.operands[0]) + "]"; break;
      default: out += std::string(checked_name(instruction.code)) + " " + list(instruction.operands); break;
    }
    out += " : " + std::string(fj::name(region_.type(instruction.result))) + apart;
    return instruction.leave.exit >= 0 ? out + " else " + text(instruction.leave) : out;
  }

  std::string text(const Terminator& end) const {
    switch (end.kind) {
      case Terminator::Kind::Jump: return "jump " + text(end.yes);
      case Terminator::Kind::Branch:
        return "branch " + name(end.condition) + ", " + text(end.yes) + ", " + text(end.no);
      case Terminator::Kind::Exit: return "exit " + text(end.leave);
    }
    return {};
  }

  const Region& region_;
  std::vector<std::string> names_;
  int next_ = 0;
};

/// Blocks and values may be named before they are defined: a value has the dtype of its definition.
class Parser : Scanner {
 public:
  explicit Parser(std::string_view text) : Scanner(text) {}

  Region parse() {
    keyword("region");
    expect("@");
    region_.name = word(".<>");
    expect("(");
    if (!accept(")")) {
      do region_.inputs.push_back(declaration());
      while (accept(","));
      expect(")");
    }
    if (accept_keyword("memory")) {
      do {
        Memory memory;
        memory.name = word();
        expect(":");
        memory.dtype = dtype();
        memory.heap = accept_keyword("heap");
        if (accept_keyword("scratch")) memory.scratch = integer();
        region_.memories.push_back(std::move(memory));
      } while (accept(","));
    }
    region_.disjoint = accept_keyword("disjoint");
    expect("{");
    while (!accept("}")) block();
    skip_space();
    if (position_ != text_.size()) fail("expected the end of the text, found " + found());
    return std::move(region_);
  }

 private:
  ValueId value() {
    expect("%");
    const std::string name = word();
    auto [known, fresh] = values_.try_emplace(name);
    if (fresh) known->second = region_.new_value(DType::I64);
    return known->second;
  }

  std::vector<ValueId> values(std::string_view end) {
    std::vector<ValueId> result;
    if (accept(end)) return result;
    do result.push_back(value());
    while (accept(","));
    expect(end);
    return result;
  }

  ValueId declaration() {
    const ValueId declared = value();
    expect(":");
    region_.types[declared.index] = dtype();
    if (accept_keyword("natural")) region_.natural.push_back(declared);
    return declared;
  }

  Leave leave() {
    Leave result;
    result.exit = int(integer());
    region_.exits = std::max(region_.exits, result.exit + 1);
    expect("(");
    result.values = values(")");
    return result;
  }

  Target target() {
    Target result;
    expect("^");
    result.block = int(integer());
    if (accept("(")) result.arguments = values(")");
    return result;
  }

  int memory() {
    const std::string name = word();
    for (std::size_t i = 0; i < region_.memories.size(); ++i)
      if (region_.memories[i].name == name) return int(i);
    fail("no memory is called `" + name + "`");
  }

  void block() {
    expect("^");
    if (const auto number = integer(); number != std::int64_t(region_.blocks.size()))
      fail("expected block ^" + std::to_string(region_.blocks.size()));
    Block result;
    if (accept("(")) {
      do result.parameters.push_back(declaration());
      while (accept(","));
      expect(")");
    }
    expect(":");
    while (!terminator(result.end)) result.body.push_back(instruction());
    region_.blocks.push_back(std::move(result));
  }

  bool terminator(Terminator& end) {
    if (accept_keyword("jump")) {
      end.kind = Terminator::Kind::Jump;
      end.yes = target();
    } else if (accept_keyword("branch")) {
      end.kind = Terminator::Kind::Branch;
      end.condition = value();
      expect(",");
      end.yes = target();
      expect(",");
      end.no = target();
    } else if (accept_keyword("exit")) {
      end.kind = Terminator::Kind::Exit;
      end.leave = leave();
    } else {
      return false;
    }
    return true;
  }

  Instruction instruction() {
    Instruction result{};
    if (accept_keyword("store")) {
      result.code = Code::Store;
      result.memory = memory();
      expect("[");
      result.operands.push_back(value());
      expect("]");
      expect(",");
      result.operands.push_back(value());
      apart(result);
      return result;
    }
    if (accept_keyword("run")) return run(std::move(result));
    if (accept_keyword("leave_if")) {
      result.code = Code::LeaveIf;
      result.operands.push_back(value());
      keyword("else");
      result.leave = leave();
      return result;
    }
    if (accept_keyword("leave_if_reported")) {
      result.code = Code::LeaveIfReported;
      do {
        const std::size_t before = result.operands.size();
        result.operands.push_back(value());
        keyword("of");
        do result.operands.push_back(value());
        while (accept(","));
        result.parts.push_back(int(result.operands.size() - before));
      } while (accept_keyword("and"));
      keyword("else");
      result.leave = leave();
      return result;
    }
    if (accept_keyword("leave_if_asked")) {
      result.code = Code::LeaveIfAsked;
      keyword("else");
      result.leave = leave();
      return result;
    }
    result.result = value();
    expect("=");
    if (accept_keyword("run")) {
      result = run(std::move(result));
      expect(":");
      region_.types[result.result.index] = dtype();
      return result;
    }
    std::size_t constant = 0;
    const std::string name = word();
    if (name == "constant") {
      result.code = Code::Constant;
      skip_space();
      constant = position_;
      position_ = std::min(text_.find(':', position_), text_.size());
    } else if (name == "call") {
      result.code = Code::Call;
      const std::string callee = word();
      result.function = function_number(callee);
      if (result.function < 0) fail("no function is called `" + callee + "`");
      expect("(");
      result.operands = values(")");
    } else if (name == "load" || name == "address") {
      result.code = name == "load" ? Code::Load : Code::Address;
      result.memory = memory();
      expect("[");
      result.operands.push_back(value());
      expect("]");
    } else {
      result.code = Code::Pointwise;
      for (int i = 0; i < 3; ++i)
        if (name == kChecked[i]) result.code = Code(int(Code::CheckedAdd) + i);
      if (name == "add_no_wrap") result.code = Code::AddNoWrap;
      if (name == "opaque") result.code = Code::Opaque;
      if (result.code == Code::Pointwise) {
        const auto op = op_from_name(name);
        if (!op) fail("no operation is called `" + name + "`");
        result.op = *op;
      }
      do result.operands.push_back(value());
      while (accept(","));
    }
    expect(":");
    const DType type = dtype();
    region_.types[result.result.index] = type;
    if (constant) {
      const std::size_t after = position_;
      position_ = constant;
      result.constant = scalar(type);
      position_ = after;
    }
    apart(result);
    if (accept_keyword("else")) result.leave = leave();
    return result;
  }

  void apart(Instruction& of) {
    if (accept_keyword("apart")) of.apart = int(integer());
  }

  Instruction run(Instruction made) {
    made.code = Code::Run;
    const std::string callee = word();
    made.function = library_number(callee);
    if (made.function < 0) fail("the region library has no `" + callee + "`");
    expect("(");
    made.operands = values(")");
    return made;
  }

  Region region_;
  std::map<std::string, ValueId> values_;
};

}  // namespace

ValueId Region::new_value(DType dtype) {
  types.push_back(dtype);
  return {std::uint32_t(types.size() - 1)};
}

std::string print(const Region& region) { return Printer(region).print(); }
Region parse_region(std::string_view text) { return Parser(text).parse(); }

}  // namespace fj::region
