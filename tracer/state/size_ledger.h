/// Sizes and lengths that are symbols.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracer/value.h"

namespace fj {

/// A symbol has one source, and a question about sizes that depend on data has one answer in a trace.
struct SizeLedger {
  struct Asked {
    SymDim difference;
    int comparison;
    bool answer;
  };
  std::vector<Asked> asked;                        // those that are followed, as branches on data are
  std::unordered_map<SourceRef, SymbolId> lengths;
  std::map<SymbolId, SourceRef> sources;           // where a symbol that guards bind is read
  std::map<std::string, SymbolId> named;           // by the name of a Dim
  std::map<ValueId, ValueId> counted;              // by mask or number: the result of the node that counts or takes it
};

}  // namespace fj
