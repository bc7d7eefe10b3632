// See pytorch_values.h. The names are those that torch/_utils.py and torch/serialization.py write.
#include "serialization/interchange/pytorch_values.h"

#include <algorithm>
#include <iterator>

#include "serialization/interchange/tensor_file.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

using Kind = PickleValue::Kind;

struct Type {
  std::string_view storage, dtype;  // "FloatStorage", "float32"
  DType ours;
};
constexpr Type kTypes[] = {
    {"DoubleStorage", "float64", DType::kF64},
    {"FloatStorage", "float32", DType::kF32},
    {"HalfStorage", "float16", DType::kF16},
    {"BFloat16Storage", "bfloat16", DType::kBF16},
    {"LongStorage", "int64", DType::kI64},
    {"IntStorage", "int32", DType::kI32},
    {"ShortStorage", "int16", DType::kI16},
    {"CharStorage", "int8", DType::kI8},
    {"ByteStorage", "uint8", DType::kU8},
    {"BoolStorage", "bool", DType::kBool},
    {"ComplexFloatStorage", "complex64", DType::kC64},
    {"ComplexDoubleStorage", "complex128", DType::kC128},
    {"", "uint16", DType::kU16},
    {"", "uint32", DType::kU32},
    {"", "uint64", DType::kU64},
    {"", "float8_e4m3fn", DType::kF8E4M3FN},
    {"", "float8_e4m3fnuz", DType::kF8E4M3FNUZ},
    {"", "float8_e5m2", DType::kF8E5M2},
    {"", "float8_e5m2fnuz", DType::kF8E5M2FNUZ},
    {"", "float8_e8m0fnu", DType::kF8E8M0FNU},
};
constexpr std::string_view kUntyped[] = {"torch.storage.UntypedStorage", "torch.UntypedStorage"};
constexpr std::string_view kFunctions[] = {
    "collections.OrderedDict",
    "torch.Size",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "_codecs.encode",
};
// Tensors of other kinds, and what they are called.
struct Refused {
  std::string_view begin, what;
};
constexpr Refused kRefused[] = {
    {"torch._utils._rebuild_sparse", "a sparse tensor"},
    {"torch._utils._rebuild_qtensor", "a quantised tensor"},
    {"torch._utils._rebuild_nested", "a nested tensor"},
    {"torch._utils._rebuild_meta", "a tensor without data"},
    {"__torch__.", "TorchScript"},
};

const Type* FindType(std::string_view name, std::string_view Type::* member) {
  constexpr std::string_view kModule = "torch.";
  if (!name.starts_with(kModule)) return nullptr;
  name.remove_prefix(kModule.size());
  const auto found = std::ranges::find(kTypes, name, member);
  return found == std::end(kTypes) || name.empty() ? nullptr : found;
}

// The whole numbers of a tuple.
bool Numbers(const Pickle& pickle, PickleId id, Dims* out) {
  const PickleValue& tuple = pickle.value(id);
  if ((tuple.kind != Kind::kTuple && tuple.kind != Kind::kList) || tuple.items.size() > kMaxRank) return false;
  for (const PickleId item : tuple.items) {
    const PickleValue& number = pickle.value(item);
    if (number.kind != Kind::kInt || number.number < 0) return false;
    out->push_back(number.number);
  }
  return true;
}

}  // namespace

std::optional<DType> TorchDType(std::string_view name) {
  const Type* type = FindType(name, &Type::dtype);
  return type == nullptr ? std::nullopt : std::optional(type->ours);
}

absl::Status TorchHost::Global(const std::string& name) {
  if (std::ranges::find(kFunctions, name) != std::end(kFunctions) ||
      std::ranges::find(kUntyped, name) != std::end(kUntyped) || FindType(name, &Type::storage) != nullptr ||
      TorchDType(name)) {
    return absl::OkStatus();
  }
  for (const Refused& refused : kRefused) {
    if (name.starts_with(refused.begin)) return NotForWeft(file_, "it holds ", refused.what, " (", Shown(name), ")");
  }
  return NotForWeft(file_, "it holds ", Shown(name),
                    ", which only running Python code would give; save the state_dict alone");
}

absl::StatusOr<PickleValue> TorchHost::Reduce(const Pickle& pickle, const std::string& function,
                                              std::span<const PickleId> arguments) {
  const auto bad = [&] {
    return absl::DataLossError(absl::StrCat("'", file_, "': the pickle calls ", function, " with ", arguments.size(),
                                            " arguments that it does not take"));
  };
  if (function == "collections.OrderedDict") {
    PickleValue dict{.kind = Kind::kDict};
    if (arguments.empty()) return dict;
    const PickleValue& pairs = pickle.value(arguments[0]);  // of Python 2: [[key, value], …]
    if (arguments.size() != 1 || pairs.kind != Kind::kList) return bad();
    for (const PickleId id : pairs.items) {
      const PickleValue& pair = pickle.value(id);
      if (pair.items.size() != 2 || (pair.kind != Kind::kList && pair.kind != Kind::kTuple)) return bad();
      dict.items.insert(dict.items.end(), pair.items.begin(), pair.items.end());
    }
    return dict;
  }
  if (function == "torch.Size") {
    if (arguments.size() != 1 || pickle.value(arguments[0]).kind != Kind::kTuple) return bad();
    return pickle.value(arguments[0]);
  }
  if (function == "_codecs.encode") {  // bytes, in protocol 2: each a letter below 256
    if (arguments.size() != 2 || pickle.value(arguments[0]).kind != Kind::kText) return bad();
    PickleValue bytes{.kind = Kind::kBytes};
    const std::string& text = pickle.value(arguments[0]).text;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<uint8_t>(text[i]);
      if (c < 0x80) {
        bytes.text += text[i];
      } else if ((c == 0xC2 || c == 0xC3) && i + 1 < text.size()) {
        bytes.text += static_cast<char>((c & 3) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3F));
      } else {
        return bad();
      }
    }
    return bytes;
  }
  if (function == "torch._utils._rebuild_parameter") {
    if (arguments.size() != 3 || pickle.value(arguments[0]).kind != Kind::kObject) return bad();
    return pickle.value(arguments[0]);
  }
  if (function == "torch._utils._rebuild_tensor" && arguments.size() == 4) {
    return Rebuild(pickle, function, arguments, 4);
  }
  if (function == "torch._utils._rebuild_tensor_v2" && (arguments.size() == 6 || arguments.size() == 7)) {
    return Rebuild(pickle, function, arguments, 6);
  }
  if (function == "torch._utils._rebuild_tensor_v3" && (arguments.size() == 7 || arguments.size() == 8)) {
    return Rebuild(pickle, function, arguments, 7);
  }
  return bad();
}

// storage, offset, size, stride, then what does not matter; v3 has a type before the metadata.
absl::StatusOr<PickleValue> TorchHost::Rebuild(const Pickle& pickle, const std::string& function,
                                               std::span<const PickleId> arguments, size_t metadata) {
  const PickleValue &storage = pickle.value(arguments[0]), &offset = pickle.value(arguments[1]);
  TorchTensor tensor;
  if (storage.kind != Kind::kStorage || offset.kind != Kind::kInt || offset.number < 0 ||
      !Numbers(pickle, arguments[2], &tensor.dims) || !Numbers(pickle, arguments[3], &tensor.strides) ||
      tensor.dims.size() != tensor.strides.size()) {
    return absl::DataLossError(absl::StrCat("'", file_, "': the pickle calls ", function,
                                            " with something else than a storage, an offset, sizes and strides"));
  }
  tensor.storage = static_cast<uint32_t>(storage.number);
  tensor.offset = offset.number;
  tensor.dtype = storages[tensor.storage].dtype;
  if (function.ends_with("_v3")) {
    const std::optional<DType> dtype = TorchDType(pickle.value(arguments[6]).text);
    if (!dtype) return absl::DataLossError(absl::StrCat("'", file_, "': a tensor has no type that Weft knows"));
    tensor.dtype = *dtype;
  }
  if (tensor.dtype == DType::kInvalid) {
    return absl::DataLossError(absl::StrCat("'", file_, "': a tensor over bytes has no type"));
  }
  if (arguments.size() > metadata) {
    const PickleValue& words = pickle.value(arguments[metadata]);
    constexpr size_t kMostWords = 32;
    for (size_t i = 0; words.kind == Kind::kDict && i + 1 < std::min(words.items.size(), kMostWords); i += 2) {
      const bool set = pickle.value(words.items[i + 1]).number != 0;
      if (pickle.value(words.items[i]).text == "conj") tensor.conjugated = set;
      if (pickle.value(words.items[i]).text == "neg") tensor.negated = set;
    }
  }
  WEFT_RETURN_IF_ERROR(CheckPlace(tensor));
  tensors.push_back(std::move(tensor));
  return PickleValue{.kind = Kind::kObject, .number = static_cast<int64_t>(tensors.size() - 1)};
}

// The last element lies inside the storage.
absl::Status TorchHost::CheckPlace(const TorchTensor& tensor) const {
  const TorchStorage& storage = storages[tensor.storage];
  const std::optional<int64_t> count = CheckedCount(tensor.dims);
  const auto outside = [&] {
    return absl::DataLossError(absl::StrCat(
        "'", file_, "': a tensor of ", TypeText(tensor.dtype, tensor.dims), " with strides ",
        DimsToString(tensor.strides), " at element ", tensor.offset, " does not lie inside storage '",
        Shown(storage.key), "' of ", storage.elements, storage.dtype == DType::kInvalid ? " bytes" : " elements"));
  };
  if (!count) return outside();
  if (*count == 0) return absl::OkStatus();
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.dims[i] - 1, tensor.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return outside();
    }
  }
  const uint64_t each = static_cast<uint64_t>(storage.dtype == DType::kInvalid ? BytesOf(tensor.dtype) : 1);
  return static_cast<uint64_t>(last) < storage.elements / each ? absl::OkStatus() : outside();
}

// ("storage", type, key, place, elements, …): of the old generation a view of another storage may follow.
absl::StatusOr<PickleValue> TorchHost::Persistent(const Pickle& pickle, PickleId name) {
  const PickleValue& tuple = pickle.value(name);
  const auto bad = [&](std::string_view why) {
    return absl::DataLossError(absl::StrCat("'", file_, "': the pickle refers to data outside it ", why));
  };
  if (tuple.kind != Kind::kTuple || tuple.items.size() < 5 || pickle.value(tuple.items[0]).text != "storage") {
    return bad("that is no storage");
  }
  const PickleValue &type = pickle.value(tuple.items[1]), &key = pickle.value(tuple.items[2]),
                    &elements = pickle.value(tuple.items[4]);
  TorchStorage storage{.key = key.text};
  if (type.kind != Kind::kGlobal || key.kind != Kind::kText || key.text.empty() || elements.kind != Kind::kInt ||
      elements.number < 0) {
    return bad("whose type, key or size is something else");
  }
  storage.elements = static_cast<uint64_t>(elements.number);
  if (const Type* known = FindType(type.text, &Type::storage)) {
    storage.dtype = known->ours;
  } else if (std::ranges::find(kUntyped, type.text) == std::end(kUntyped)) {
    return bad("whose type is none of a storage");
  }
  if (tuple.items.size() > 5 && pickle.value(tuple.items[5]).kind != Kind::kNone) {
    return NotForWeft(file_, "storage '", Shown(key.text),
                      "' is a view of another; PyTorch stopped writing such files in 0.4");
  }
  const auto [at, added] = by_key_.emplace(storage.key, static_cast<uint32_t>(storages.size()));
  if (added) {
    storages.push_back(std::move(storage));
  } else if (storages[at->second].dtype != storage.dtype || storages[at->second].elements != storage.elements) {
    return bad(absl::StrCat("under the key '", Shown(key.text), "' twice, of two types or sizes"));
  }
  return PickleValue{.kind = Kind::kStorage, .number = at->second};
}

}  // namespace weft
