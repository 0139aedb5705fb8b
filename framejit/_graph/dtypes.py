"""The names of dtypes: graphs' ("f32"), and those that NumPy and torch share ("float32")."""

NAMES = {"bool": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32",
         "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
_SHORT = {name: short for short, name in NAMES.items()}


def library_name(dtype):
    return NAMES[dtype]


def graph_name(dtype):
    """Of a dtype object of NumPy's or torch's; "?" for one that graphs have not."""
    return _SHORT.get(str(dtype).rpartition(".")[2], "?")
