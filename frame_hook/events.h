/// What happened to one compiled function, kept for `explain` and logged as it happens.
///
/// An Events object belongs to one compiled function. It is bounded: a repeated event counts up instead of being kept
/// again, past the limit only totals move, and of pieces that were dropped few graphs are kept. All members are called
/// with the GIL held; nothing here runs user code (source lines come from linecache).
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "guards/guard_set.h"
#include "runtime/base/log.h"
#include "segment/segment.h"

namespace fj {

/// One row of breaks.def.
struct BreakRow {
  int number;
  const char* name;
  const char* what;
  const char* remedy;
  std::string code() const { return "FJ" + std::to_string(number); }  // "FJ104"
};
const BreakRow& break_row(BreakReason reason);

struct GraphEvent {
  std::string function;
  std::shared_ptr<const Graph> graph;
  int nodes = 0;
  int kernels = 0;
  std::weak_ptr<const Segment> segment;  // while it is kept: its guards hold objects of the user
  std::string timings;  // by phase
  double seconds = 0;                    // tracing and compiling
};

struct BreakEvent {
  BreakEvent() = default;
  explicit BreakEvent(const Segment& segment);  // of its exit

  BreakReason reason{};
  std::string file, function, detail;
  std::vector<std::string> calls;        // from the traced function to `function`; empty: not known
  int line = 0;
  int nodes = 0;                         // operations of the graph that ends here
  std::int64_t count = 1;

  std::string source() const;            // the user's line, stripped; "" if it can't be had
  std::string cost() const;
  std::string text() const;              // the message in the form of docs: four lines
  std::string complaint() const;         // the same where no graph may break (option `fullgraph`)
  std::string refusal() const;           // the same where it ends the call (option `follow`)

 private:
  std::string described(const char* what) const;
};

struct RecompileEvent {
  std::string function;
  std::string guard;                     // "L.k == 3"
  std::string found, expected;
  std::string location;                  // the user's line that needed the guard, if known
  std::int64_t count = 1;

  RecompileEvent() = default;
  RecompileEvent(const std::string& name, const GuardSet::Failure& failure);
  std::string text() const;
  /// What failed, from the second line on: "L.k == 3 no longer holds ...".
  std::string cause() const;
};

struct FallbackEvent {
  std::string function, reason;
  bool internal = false;                 // a failure of framejit itself
  std::int64_t count = 1;

  std::string text() const;
};

/// A loop that runs as a region (tracer/regions/loop_region.h), or that doesn't.
struct LoopEvent {
  std::string function;
  int line = 0;
  std::string made;    // "one region, 3 blocks, 2 exits", "16 passes are a piece"; "": no region
  std::string reason;                    // why there is none, or what is left to CPython
  std::int64_t count = 1;

  std::string text() const;
};

/// Counts over the whole process, changed with the GIL held.
struct Totals {
  std::uint64_t calls = 0, hits = 0, segments = 0, graphs = 0, kernels_launched = 0, recompiles = 0,
                internal_errors = 0, eager_replays = 0, breaks = 0, retired = 0, regions = 0, regions_entered = 0,
                regions_on_threads = 0;
};
Totals& totals();

class Events {
 public:
  /// `program`: what the graph became, or null. Texts of all are made only where they are logged or asked for: they are
  /// megabytes.
  void graph(GraphEvent event, const Program* program);
  /// The graph was made from a wrong prediction and never ran: another takes its place.
  void withdraw(const Graph* graph);
  /// `segment` ended in a break (Exit::Kind::Break); loops and handovers are not breaks.
  void graph_break(const Segment& segment);
  void graph_break(BreakEvent event);
  void recompile(const std::string& function, const GuardSet::Failure& failure);
  void recompile(RecompileEvent event);
  /// A piece ran eagerly though it was compiled, or was not compiled, for `reason`.
  void fallback(const std::string& function, const std::string& reason, bool internal = false);
  /// The call is CPython's from the start.
  void left(const std::string& function, const std::string& reason) { note({function, reason}); }

  /// An entry runs eagerly from now on, for `reason`.
  void retire(const std::string& function, const std::string& reason);

  /// `listing`: its text, for the log of graphs.
  void loop(LoopEvent event, const std::string& listing = "");

  const std::vector<LoopEvent>& loops() const { return loops_; }
  const std::vector<GraphEvent>& graphs() const { return graphs_; }
  const std::vector<BreakEvent>& breaks() const { return breaks_; }
  const std::vector<RecompileEvent>& recompiles() const { return recompiles_; }
  const std::vector<FallbackEvent>& fallbacks() const { return fallbacks_; }
  void clear();

 private:
  void note(FallbackEvent event);

  std::vector<GraphEvent> graphs_;
  std::vector<BreakEvent> breaks_;
  std::vector<RecompileEvent> recompiles_;
  std::vector<FallbackEvent> fallbacks_;
  std::vector<LoopEvent> loops_;
};

}  // namespace fj
