// Recording and wording of events.
//
// The same place breaking, or the same guard failing, again is the same event: it is logged the first time and counted
// after that, so a loop that breaks does not fill the screen.
#include "frame_hook/events.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>

#include "cpython/pending_error.h"
#include "graph_ir/print.h"
#include "runtime/base/error.h"

namespace fj {
namespace {

constexpr std::size_t kept = 256;  // events of one kind and function
constexpr std::size_t kept_of_gone = 8;  // graphs of a function's pieces that were dropped

constexpr BreakRow break_rows[] = {
#define FJ_BREAK(number, name, what, remedy) {number, #name, what, remedy},
#include "segment/breaks.def"
};

/// `make.<locals>.Encoder.forward` is Encoder.forward in a chain of calls.
std::string without_locals(const std::string& function) {
  constexpr std::string_view locals = "<locals>.";
  const auto at = function.rfind(locals);
  return at == std::string::npos ? function : function.substr(at + locals.size());
}

std::string operations(int count) { return std::to_string(count) + (count == 1 ? " operation" : " operations"); }

/// The line through linecache, which also knows notebooks, doctests and zipped modules.
std::string source_line(const std::string& file, int line) {
  if (file.empty() || line <= 0) return "";
  const PendingError pending;
  std::string text;
  if (auto module = Ref<>::steal(PyImport_ImportModule("linecache"))) {
    if (auto found = Ref<>::steal(PyObject_CallMethod(module.get(), "getline", "si", file.c_str(), line))) {
      Py_ssize_t size = 0;
      if (const char* bytes = PyUnicode_AsUTF8AndSize(found.get(), &size)) text.assign(bytes, std::size_t(size));
    }
  }
  auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.back())) text.pop_back();
  std::size_t start = 0;
  while (start < text.size() && space(text[start])) ++start;
  return text.substr(start);
}

/// Counts up an event that is there already; else keeps a new one while there is room. True if it is new.
template <class Event, class Same>
bool record(std::vector<Event>& events, Event event, Same same) {
  for (Event& old : events) {
    if (!same(old, event)) continue;
    old.count += event.count;
    return false;
  }
  if (events.size() >= kept) return false;
  events.push_back(std::move(event));
  return true;
}

}  // namespace

const BreakRow& break_row(BreakReason reason) {
  for (const BreakRow& row : break_rows)
    if (row.number == int(reason)) return row;
  fail_check(__FILE__, __LINE__, "row of breaks.def", "no break has number " + std::to_string(int(reason)));
}

Totals& totals() {
  static Totals totals;
  return totals;
}

BreakEvent::BreakEvent(const Segment& segment)
    : reason(segment.exit.reason),
      file(segment.exit.file),
      function(segment.exit.function),
      detail(segment.exit.detail),
      calls(segment.exit.calls),
      line(segment.exit.line),
      nodes(segment.nodes) {}

std::string BreakEvent::source() const { return source_line(file, line); }

std::string BreakEvent::cost() const {
  if (nodes == 0) return "one more return to Python; no array operation is split off";
  return "a graph of " + operations(nodes) + " ends here; what follows is another graph";
}

std::string BreakEvent::text() const {
  return described("graph break") + "\n  cost  " + cost() + "\n  try   " + break_row(reason).remedy;
}

std::string BreakEvent::complaint() const {
  std::string remedy = break_row(reason).remedy;
  // What needs nothing where Python takes over for an instruction. "none needed: ...; and what helps all the same".
  const bool none = remedy.starts_with("none needed");
  if (none || remedy.starts_with("nothing to do")) {
    const auto more = none ? remedy.find("; ") : std::string::npos;
    remedy = "keep it out of the function, or compile without fullgraph: Python runs it then" +
             (more == std::string::npos ? "" : remedy.substr(more));
  }
  return described("graph break") + "\n  try   " + remedy;
}

std::string BreakEvent::refusal() const { return described("this can't be derived or batched,"); }

std::string BreakEvent::described(const char* what) const {
  const BreakRow& row = break_row(reason);
  std::string result = std::string("framejit: ") + what + " at " + file + ":" + std::to_string(line) + " in ";
  if (calls.size() > 1)
    for (std::size_t i = 0; i < calls.size(); ++i) result += (i ? " -> " : "") + without_locals(calls[i]);
  else
    result += function;
  result += "\n  " + row.code() + " " + row.what;
  std::string said = detail;
  // Details that quote the user's line do so in backquotes; others get it in front.
  if (said.find('`') == std::string::npos) {
    if (std::string line_text = source(); !line_text.empty())
      said = "`" + line_text + "`" + (said.empty() || said == line_text ? "" : ": " + said);
  }
  return said.empty() ? result : result + ": " + said;
}

RecompileEvent::RecompileEvent(const std::string& name, const GuardSet::Failure& failure)
    : function(name),
      guard(failure.guard ? failure.guard->text() : failure.expected),
      found(failure.found),
      expected(failure.expected),
      location(failure.guard ? failure.guard->location : "") {}

std::string RecompileEvent::text() const { return "framejit: recompile of " + function + cause(); }

std::string RecompileEvent::cause() const {
  std::string result = "\n  " + guard + " no longer holds";
  result += "\n  was   " + expected + "\n  now   " + found;
  if (!location.empty()) result += "\n  from  " + location;
  return result;
}

std::string FallbackEvent::text() const {
  std::string result = internal ? "framejit: internal failure in " : "framejit: ran eagerly: ";
  result += function + "\n  " + reason;
  if (internal) result += "\n  try   please report it; FRAMEJIT_STRICT=1 raises it where it happens";
  return result;
}

void Events::withdraw(const Graph* graph) {
  const auto found =
      std::find_if(graphs_.begin(), graphs_.end(), [&](const GraphEvent& event) { return event.graph.get() == graph; });
  if (found == graphs_.end()) return;
  graphs_.erase(found);
  --totals().graphs;
}

void Events::graph(GraphEvent event, const Program* program) {
  ++totals().graphs;
  if (log_enabled(Artifact::graphs, event.function))
    log(Artifact::graphs, "framejit: graph of " + event.function + " (" + operations(event.nodes) + ", " +
                              std::to_string(event.kernels) + (event.kernels == 1 ? " kernel)\n" : " kernels)\n") +
                              print_short(*event.graph));
  if (log_enabled(Artifact::guards, event.function)) {
    std::string text = "framejit: guards of " + event.function;
    if (const auto segment = event.segment.lock())
      for (const std::string& guard : segment->guards->text()) text += "\n  " + guard;
    log(Artifact::guards, text);
  }
  if (log_enabled(Artifact::timings, event.function)) {
    char total[32];
    std::snprintf(total, sizeof total, "%.2f", event.seconds * 1e3);
    log(Artifact::timings, "framejit: first call of " + event.function + " took " + total + " ms (" +
                               operations(event.nodes) + ")\n  " + event.timings);
  }
  const bool code = log_enabled(Artifact::code, event.function);
  if (program && (code || log_enabled(Artifact::kernels, event.function)))
    if (const std::string steps = program->text(); !steps.empty())
      log(code ? Artifact::code : Artifact::kernels, "framejit: kernels of " + event.function + "\n" + steps);
  // Where room is short a piece is dropped and made again, any number of times.
  const auto is_gone = [](const GraphEvent& other) { return other.segment.expired(); };
  while (std::size_t(std::count_if(graphs_.begin(), graphs_.end(), is_gone)) > kept_of_gone)
    graphs_.erase(std::find_if(graphs_.begin(), graphs_.end(), is_gone));
  if (graphs_.size() < kept) graphs_.push_back(std::move(event));
}

void Events::graph_break(const Segment& segment) { graph_break(BreakEvent(segment)); }

void Events::graph_break(BreakEvent event) {
  ++totals().breaks;
  bool wanted = log_enabled(Artifact::graph_breaks, event.function);
  BreakEvent copy = wanted ? event : BreakEvent{};
  bool fresh = record(breaks_, std::move(event), [](const BreakEvent& a, const BreakEvent& b) {
    return a.line == b.line && a.reason == b.reason && a.file == b.file && a.function == b.function &&
           a.detail == b.detail;
  });
  if (fresh && wanted) log(Artifact::graph_breaks, copy.text());
}

void Events::recompile(const std::string& function, const GuardSet::Failure& failure) {
  recompile(RecompileEvent(function, failure));
}

void Events::recompile(RecompileEvent event) {
  ++totals().recompiles;
  bool wanted = log_enabled(Artifact::recompiles, event.function);
  RecompileEvent copy = wanted ? event : RecompileEvent{};
  bool fresh = record(recompiles_, std::move(event), [](const RecompileEvent& a, const RecompileEvent& b) {
    return a.guard == b.guard && a.found == b.found && a.function == b.function;
  });
  if (fresh && wanted) log(Artifact::recompiles, copy.text());
}

void Events::fallback(const std::string& function, const std::string& reason, bool internal) {
  ++(internal ? totals().internal_errors : totals().eager_replays);
  note({function, reason, internal});
}

void Events::retire(const std::string& function, const std::string& reason) {
  ++totals().retired;
  note({function, "from now on, because " + reason});
}

void Events::note(FallbackEvent event) {
  bool fresh = record(fallbacks_, event, [](const FallbackEvent& a, const FallbackEvent& b) {
    return a.internal == b.internal && a.reason == b.reason && a.function == b.function;
  });
  // A failure of ours is always said once: it is a bug the user did not ask for.
  if (fresh && (event.internal || log_enabled(Artifact::fallbacks, event.function)))
    log(Artifact::fallbacks, event.text(), event.internal ? LogLevel::warning : LogLevel::info);
}

std::string LoopEvent::text() const {
  std::string result = "framejit: loop at line " + std::to_string(line) + " of " + function + ": ";
  result += made.empty() ? "no region" : made;
  return reason.empty() ? result : result + "; " + reason;
}

void Events::loop(LoopEvent event, const std::string& listing) {
  const bool fresh = record(loops_, event, [](const LoopEvent& a, const LoopEvent& b) {
    return a.line == b.line && a.made == b.made && a.reason == b.reason;
  });
  if (fresh && log_enabled(Artifact::graphs, event.function))
    log(Artifact::graphs, event.text() + (listing.empty() ? "" : "\n" + listing));
}

void Events::clear() {
  graphs_.clear();
  breaks_.clear();
  recompiles_.clear();
  fallbacks_.clear();
  loops_.clear();
}

}  // namespace fj
