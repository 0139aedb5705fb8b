/// Dicts and their views.
#pragma once

#include "tracer/tracer.h"

namespace fj {

class TraceRun;

void open(TraceRun& t, DictValue& dict);
V dict_find(TraceRun& t, DictValue& dict, PyObject* key);  // null: absent (guarded)
void dict_store(TraceRun& t, const V& dict, Ref<> key, const V& value);
bool has_plain_keys(TraceRun& t, DictValue& dict);
/// Its place among the items; their number if it is not there. Runs __eq__ of keys.
std::size_t dict_place(TraceRun& t, DictValue& dict, PyObject* key);
/// Puts a value into an opened dict, or deletes the key, without a note of it.
void dict_put(TraceRun& t, DictValue& dict, Ref<> key, const V& value);
void dict_erase(TraceRun& t, const V& dict, std::size_t place);
void refresh_view(TraceRun& t, TupleValue& view);
bool view_contains(TraceRun& t, TupleValue& view, const V& item);

}  // namespace fj
