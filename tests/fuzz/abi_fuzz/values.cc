// Drawing of arguments: words, numbers, structs, and what operations take.
#include "tests/fuzz/abi_fuzz/fuzz.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace weft::fuzz {
namespace {

// Types that can be computed with, by class; see OpInfo::types.
constexpr uint32_t kFloats[] = {WEFT_F32, WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
constexpr uint32_t kSigned[] = {WEFT_I32, WEFT_I64, WEFT_I8, WEFT_I16};
constexpr uint32_t kUnsigned[] = {WEFT_U32, WEFT_U64, WEFT_U8, WEFT_U16};
constexpr uint32_t kNarrow[] = {WEFT_I2,      WEFT_I4,           WEFT_U2,       WEFT_U4,         WEFT_F8E3M4,  WEFT_F8E4M3,
                                WEFT_F8E4M3FN, WEFT_F8E4M3B11FNUZ, WEFT_F8E4M3FNUZ, WEFT_F8E5M2, WEFT_F8E5M2FNUZ, WEFT_F8E8M0FNU};

const char* const kKeyWords[] = {"w", "b", "list", "model", "model.w", "step", "list.0", "a key that is longer than short ones are", "ключ", ""};
const char* const kFileWords[] = {"a.weft", "b.weft", "c.weft", "digits.idx", "missing/d.weft", ".", "e.weft"};
const char* const kProgramFileWords[] = {"f.program", "g.program", "missing/h.program", ".", "digits.idx"};
const char* const kOptionWords[] = {"devices",   "mode",      "platform",      "seed",      "isa",        "threads",         "max_pending_nodes",
                                    "cache_dir", "cache_mode",    "log",       "hash_bits",  "cache_max_bytes", "max_pending_bytes",
                                    "use_bf16",  "use_32bit_long", "no_option", "max_pending_nodex"};
const char* const kDetailWords[] = {"choices", "since", "deprecated", "most", "nothing"};
const char* const kDeviceWords[] = {"cpu:0", "reference:0", "cpu:1", "gpu:0"};
const char* const kAxesWords[] = {"data=2", "data=2,model=2", "x=4", "x=1", "data=3", "x=0", "x=2,x=2", "x", "", "x=99999999999999999999", "=2"};
const char* const kSpecWords[] = {"-", "-,-", "data,-", "data", "-,model", "data+model", "x", "data,data", "y,-", "", ",", "-,-,-", "data+"};
const char* const kMetricWords[] = {"cuts", "launches", "bad_releases", "live_tensors", "programs_compiled", "warnings", "no_metric", "compile_nanoseconds", "read_bytes", "aten::nonzero", "mine"};
const char* const kPayloadWords[] = {"weft.operation", "weft.position", "weft.operands", "weft.nothing"};
const char* const kProgramWords[] = {
    "func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
    "  %0 = stablehlo.multiply %a, %b : tensor<2x3xf32>\n  return %0 : tensor<2x3xf32>\n}",
    "module @m {\n  func.func public @main() -> (tensor<f32>) {\n    %c = stablehlo.constant dense<2.5> : tensor<f32>\n"
    "    return %c : tensor<f32>\n  }\n}",
    "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %0 = stablehlo.sparkle %a : tensor<2xf32>\n"
    "  return %0 : tensor<2xf32>\n}",
    "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n  return %a : tensor<2xf32>\n}",
    "module {",
    "func @main(%0: tensor<2x3xf32>) -> (tensor<2x3xf32>) {\n  %1 = negate(%0) : tensor<2x3xf32> loc(\"a.c:3\")\n  return %1\n}\n",
    "module {words = 1}\nfunc @main(%0: tensor<f32> {word = 0}) -> (tensor<f32>) {\n  return %0\n}\n"};

template <size_t N>
const char* AnyOf(Fuzz& f, const char* const (&words)[N]) {
  return words[f.Roll(N)];
}

std::string Word(Fuzz& f, Words words) {
  switch (words) {
    case Words::kKeys: {
      const int n = f.Roll(40);
      return n < 20 ? "k" + std::to_string(n) : AnyOf(f, kKeyWords);
    }
    case Words::kFiles: return g_settings.folder + "/" + AnyOf(f, kFileWords);
    case Words::kReadFiles: return g_settings.folder + "/" + (f.OneIn(4) ? "w.safetensors" : AnyOf(f, kFileWords));
    case Words::kProgramFiles: return g_settings.folder + "/" + AnyOf(f, kProgramFileWords);
    case Words::kOptions: return AnyOf(f, kOptionWords);
    case Words::kDetails: return AnyOf(f, kDetailWords);
    case Words::kDevices: return AnyOf(f, kDeviceWords);
    case Words::kMetrics: return AnyOf(f, kMetricWords);
    case Words::kFunctions: return kFunctions[f.Roll(static_cast<int>(kFunctionCount))].name;
    case Words::kPayloads: return AnyOf(f, kPayloadWords);
    case Words::kPrograms: return AnyOf(f, kProgramWords);
    case Words::kAxes: return AnyOf(f, kAxesWords);
    case Words::kSpecs: return AnyOf(f, kSpecWords);
  }
  return "";
}

// Integers that no shape and no position has. What lies between is not drawn: it would be computed, for minutes.
int64_t Hostile64(Fuzz& f) {
  constexpr int64_t kTera = int64_t{1} << 40;
  return f.Of<int64_t>({-1, -2, kTera, kTera + 1, -kTera, int64_t{1} << 62, INT64_MAX, INT64_MIN, INT64_MAX - 1, 33, 17});
}

}  // namespace

int64_t BytesOf(uint32_t dtype, int64_t count) {
  switch (dtype) {
    case WEFT_I2:
    case WEFT_U2: return (count + 3) / 4;
    case WEFT_I4:
    case WEFT_U4: return (count + 1) / 2;
    case WEFT_F8E3M4:
    case WEFT_F8E4M3:
    case WEFT_F8E4M3B11FNUZ:
    case WEFT_F8E4M3FN:
    case WEFT_F8E4M3FNUZ:
    case WEFT_F8E5M2:
    case WEFT_F8E5M2FNUZ:
    case WEFT_F8E8M0FNU:
    case WEFT_I8:
    case WEFT_U8:
    case WEFT_BOOL: return count;
    case WEFT_I16:
    case WEFT_U16:
    case WEFT_F16:
    case WEFT_BF16: return 2 * count;
    case WEFT_I32:
    case WEFT_U32:
    case WEFT_F32: return 4 * count;
    case WEFT_I64:
    case WEFT_U64:
    case WEFT_F64:
    case WEFT_C64: return 8 * count;
    case WEFT_C128: return 16 * count;
    default: return 0;
  }
}

// --- Plain values --------------------------------------------------------------------------------------------------------

void* Fuzz::Block(size_t size) {
  void* const block = std::calloc(1, size == 0 ? 1 : size);
  if (block == nullptr) std::abort();
  blocks_.push_back(block);
  return block;
}

void* Fuzz::Watched(size_t size) {
  void* const block = Block(size);
  std::memset(block, 0xA5, size);
  watched_.push_back({block, size, std::string(size, '\xA5')});
  return block;
}

Text Fuzz::DrawText(Words words) {
  if (Wrong()) {
    switch (Roll(6)) {
      case 0: return {nullptr, OneIn(2) ? WEFT_STRLEN : static_cast<size_t>(Roll(3))};
      case 1: {  // lengths that nobody can mean; the memory must not be read
        const auto text = static_cast<char*>(Block(1));
        return {text, Of<size_t>({SIZE_MAX - 1, size_t{1} << 63, size_t{1} << 50})};
      }
      case 2: {
        const size_t size = 1 + static_cast<size_t>(Roll(12));
        const auto text = static_cast<char*>(Block(size));
        for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(Bits());
        return {text, size};
      }
      case 3: {
        const size_t size = static_cast<size_t>(1 + Roll(70000));
        const auto text = static_cast<char*>(Block(size));
        std::memset(text, 'x', size);
        return {text, size};
      }
      case 4: return {static_cast<char*>(Block(3)), 3};  // of NULs
      default: {
        const auto text = static_cast<char*>(Block(4));
        std::memcpy(text, "\xED\xA0\x80", 3);  // half a pair
        return {text, 3};
      }
    }
  }
  const std::string word = Word(*this, words);
  const bool ends = OneIn(2);  // at a NUL, else at the length with nothing behind
  const auto text = static_cast<char*>(Block(word.size() + ends));
  std::memcpy(text, word.data(), word.size());
  return {text, ends ? WEFT_STRLEN : word.size()};
}

const void* Fuzz::Bytes(size_t* size) {
  *size = static_cast<size_t>(Roll(40));
  if (Wrong()) {
    if (OneIn(2)) *size = size_t{1} << Of({50, 62, 63});
    return nullptr;
  }
  const auto data = static_cast<unsigned char*>(Block(*size));
  for (size_t i = 0; i < *size; ++i) data[i] = static_cast<unsigned char>(Bits());
  return data;
}

const weft_setting* Fuzz::Settings(Words words, uint64_t* count) {
  *count = OneIn(2) ? 0 : static_cast<uint64_t>(Roll(3));
  if (Wrong() && OneIn(3)) {
    *count = Of<uint64_t>({1, UINT64_MAX, uint64_t{1} << 60});
    return nullptr;
  }
  if (*count == 0) return nullptr;
  const auto all = static_cast<weft_setting*>(Block(*count * sizeof(weft_setting)));
  for (uint64_t i = 0; i < *count; ++i) {
    const Text name = DrawText(words), value = DrawText(Words::kKeys);
    all[i] = {name.data, name.length, value.data, value.length};
  }
  return all;
}

int64_t Fuzz::Integer() { return Wrong() ? Hostile64(*this) : Roll(OneIn(3) ? 12 : 3); }

double Fuzz::Real() {
  if (!Wrong()) return Of({0.5, 0.1, 1.0, 0.0, -1.0, 3.0, 1e-3});
  using Limits = std::numeric_limits<double>;
  return Of({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 1e308, -0.0, 5e-324, -1e300, 1e19});
}

uint32_t Fuzz::DTypeNumber() {
  if (Wrong()) return Of<uint32_t>({0, WEFT_C64, 1, UINT32_MAX, WEFT_F32 ^ 0x10000, WEFT_F32 | 0x20000, 0x7FFFFFFF});
  switch (Roll(6)) {
    case 0: return kSigned[Roll(4)];
    case 1: return kUnsigned[Roll(4)];
    case 2: return OneIn(2) ? static_cast<uint32_t>(WEFT_BOOL) : kNarrow[Roll(12)];
    default: return kFloats[Roll(5)];
  }
}

int Fuzz::OneOf(std::initializer_list<int> values) {
  return Wrong() ? Of({-1, static_cast<int>(values.size()), INT32_MAX, INT32_MIN, 1000}) : Of(values);
}

void* Fuzz::AnyOptions(size_t known) {
  if (OneIn(4)) return nullptr;
  size_t says = known;
  const bool wrong = Wrong();
  if (wrong) says = Of<size_t>({0, 7, 15, 16, 17, known - 8, known - 1, known + 1, known + 8, known + 4096, 65536, 65537, SIZE_MAX, size_t{1} << 63});
  const size_t size = std::max(known, says <= 65536 ? says : 0);
  const auto bytes = static_cast<unsigned char*>(Block(size));
  if (wrong && size > known && OneIn(2)) bytes[known + static_cast<size_t>(Roll(static_cast<int>(size - known)))] = 1;
  std::memcpy(bytes, &says, sizeof says);
  if (wrong && OneIn(4)) {
    const void* const next = OneIn(2) ? bytes : reinterpret_cast<const void*>(Bits());
    std::memcpy(bytes + sizeof says, &next, sizeof next);
  }
  return bytes;
}

void* Fuzz::AnyOutStruct(size_t known) {
  if (Wrong() && OneIn(3)) return nullptr;
  size_t says = known;
  if (Wrong()) says = Of<size_t>({0, 8, 15, 16, 24, known - 8, known + 8, 4096, 65537, SIZE_MAX});
  const size_t size = std::max(known, says <= 65536 ? says : 0);
  const auto bytes = static_cast<char*>(Watched(size));
  std::memcpy(bytes, &says, sizeof says);
  watched_.back().before.assign(bytes, size);
  return bytes;
}

void* Fuzz::StructBytes(size_t known, size_t* size) {
  *size = Wrong() ? Of<size_t>({0, 1, 8, 15, 16, 17, known - 8, known + 8, 5000}) : known;
  return Wrong() && OneIn(3) ? nullptr : Block(*size);
}

// --- Operations ----------------------------------------------------------------------------------------------------------

void Fuzz::BeginOp(const OpInfo& op) {
  op_ = &op;
  sample_ = op.sample_count == 0 ? nullptr : &kSamples[op.samples + Roll(op.sample_count)];
  // T stands for one type of the first operand that is T.
  int first = 0;
  if (sample_ != nullptr) {
    while (first < sample_->operand_count && kSampleOperands[sample_->operands + first].dtype != 0) ++first;
  }
  const int types = op.operand_count == 0 ? 1 : op.types[std::min(first, op.operand_count - 1)];
  const bool any_type = OneIn(3);
  do {
    switch (any_type ? Roll(5) : 0) {
      case 0: type_ = (types & 1) != 0 ? kFloats[Roll(5)] : (types & 2) != 0 ? kSigned[Roll(4)] : (types & 8) != 0 ? static_cast<uint32_t>(WEFT_BOOL) : kUnsigned[Roll(4)]; break;
      case 1: type_ = (types & 2) != 0 ? kSigned[Roll(4)] : 0; break;
      case 2: type_ = (types & 4) != 0 ? kUnsigned[Roll(4)] : 0; break;
      case 3: type_ = (types & 8) != 0 ? static_cast<uint32_t>(WEFT_BOOL) : 0; break;
      default: type_ = (types & 16) != 0 ? static_cast<uint32_t>(OneIn(2) ? WEFT_C64 : WEFT_C128) : 0;
    }
  } while (type_ == 0);
}

weft_tensor* Fuzz::Operand(int i) {
  if (Wrong()) return static_cast<weft_tensor*>(Hostile(Kind::kTensor));
  // Results of other operations, so that graphs grow; they often do not fit.
  if (OneIn(6)) return static_cast<weft_tensor*>(Pick(Kind::kTensor));
  if (sample_ == nullptr || i >= sample_->operand_count) return nullptr;
  const SampleOperand& x = kSampleOperands[sample_->operands + i];
  if (x.rank < 0) return nullptr;
  return MakeTensor(x.dtype == 0 ? type_ : x.dtype, kIntegers + x.dims, x.rank, x.low, x.high);
}

weft_tensor* const* Fuzz::Operands(int i, size_t* count) {
  *count = sample_ == nullptr ? 1 : static_cast<size_t>(std::max(sample_->operand_count - i, 0));
  if (Wrong() && OneIn(2)) {
    *count = Of<size_t>({0, 1, SIZE_MAX, size_t{1} << 62});
    return nullptr;
  }
  if (Wrong()) ++*count;
  const auto all = static_cast<weft_tensor**>(Block(*count * sizeof(weft_tensor*)));
  for (size_t k = 0; k < *count; ++k) all[k] = Operand(i + static_cast<int>(k));
  return all;
}

const SampleAttr* Fuzz::Said(int attr) const {
  if (sample_ == nullptr) return nullptr;
  for (int k = 0; k < sample_->attr_count; ++k) {
    const SampleAttr& a = kSampleAttrs[sample_->attrs + k];
    if (a.attr == attr) return &a;
  }
  return nullptr;
}

bool Fuzz::Given(int attr) { return Said(attr) != nullptr ? !OneIn(20) : OneIn(12); }

int64_t Fuzz::IntAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Hostile64(*this);
  return said != nullptr ? said->i : Roll(4) - 1;
}
double Fuzz::DoubleAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  return said != nullptr && !Wrong() ? said->d : Real();
}
int64_t Fuzz::BoolAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Of<int64_t>({-1, 2, INT32_MAX});
  return said != nullptr ? said->i : Roll(2);
}
uint32_t Fuzz::DTypeAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  return said != nullptr && !Wrong() && !OneIn(8) ? static_cast<uint32_t>(said->i) : DTypeNumber();
}
int Fuzz::EnumAttr(int attr) {
  const SampleAttr* const said = Said(attr);
  if (Wrong()) return Of({-1, op_->enumerators[attr], INT32_MAX, INT32_MIN});
  return said != nullptr ? static_cast<int>(said->i) : Roll(op_->enumerators[attr]);
}

const int64_t* Fuzz::IntsAttr(int attr, size_t* count) {
  const SampleAttr* const said = Said(attr);
  int64_t values[80];
  size_t n = 0;
  if (said != nullptr) {
    n = static_cast<size_t>(said->count);
    std::copy_n(kIntegers + said->at, n, values);
  } else {
    n = static_cast<size_t>(Roll(4));
    for (size_t i = 0; i < n; ++i) values[i] = Roll(4) - 1;
  }
  if (Wrong()) {
    switch (Roll(6)) {
      case 0: *count = Of<size_t>({1, 4096, 4097, SIZE_MAX, size_t{1} << 61}); return nullptr;
      case 1: *count = Of<size_t>({4097, SIZE_MAX, size_t{1} << 61}); return static_cast<int64_t*>(Block(8));
      case 2: n = n == 0 ? 0 : n - 1; break;
      case 3: values[n++] = Roll(5) - 2; break;
      case 4:
        while (n < 33) values[n++] = Roll(2);
        break;
      default:
        if (n > 0) values[Roll(static_cast<int>(n))] = Hostile64(*this);
    }
  }
  *count = n;
  if (n == 0 && OneIn(2)) return nullptr;
  const auto data = static_cast<int64_t*>(Block(n * sizeof(int64_t)));
  std::copy_n(values, n, data);
  return data;
}

// Numbers of a sample stand among its integers, bit by bit.
const double* Fuzz::DoublesAttr(int attr, size_t* count) {
  const SampleAttr* const said = Said(attr);
  double values[80];
  size_t n = 0;
  if (said != nullptr) {
    n = static_cast<size_t>(said->count);
    std::memcpy(values, kIntegers + said->at, n * sizeof(double));
  } else {
    n = static_cast<size_t>(Roll(4));
    for (size_t i = 0; i < n; ++i) values[i] = Real();
  }
  if (Wrong()) {
    switch (Roll(4)) {
      case 0: *count = Of<size_t>({1, 4097, SIZE_MAX, size_t{1} << 61}); return nullptr;
      case 1: n = n == 0 ? 0 : n - 1; break;
      case 2: values[n++] = Real(); break;
      default:
        if (n > 0) values[Roll(static_cast<int>(n))] = Real();
    }
  }
  *count = n;
  if (n == 0 && OneIn(2)) return nullptr;
  const auto data = static_cast<double*>(Block(n * sizeof(double)));
  std::copy_n(values, n, data);
  return data;
}

// A text of a sample stands among its integers, a character each.
const char* Fuzz::WordsAttr(int attr, size_t* count) {
  const SampleAttr* const said = Said(attr);
  char values[80];
  size_t n = 0;
  if (said != nullptr) {
    n = static_cast<size_t>(said->count);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<char>(kIntegers[said->at + static_cast<int64_t>(i)]);
  }
  if (Wrong()) {
    switch (Roll(4)) {
      case 0: *count = Of<size_t>({1, SIZE_MAX - 1, size_t{1} << 61}); return nullptr;
      case 1: n = n == 0 ? 0 : n - 1; break;
      case 2: values[n++] = static_cast<char>(Roll(256)); break;
      default:
        if (n > 0) values[Roll(static_cast<int>(n))] = static_cast<char>(Roll(256));
    }
  }
  *count = n;
  if (n == 0 && OneIn(2)) return nullptr;
  const auto data = static_cast<char*>(Block(n));
  std::copy_n(values, n, data);
  return data;
}

void Fuzz::Fill(void* data, uint32_t dtype, int64_t count, int64_t low, int64_t high) {
  if (dtype == WEFT_C64) return Fill(data, WEFT_F32, 2 * count, low, high);
  if (dtype == WEFT_C128) return Fill(data, WEFT_F64, 2 * count, low, high);
  auto* at = static_cast<unsigned char*>(data);
  if (BytesOf(dtype, 4) < 4) {  // several elements in a byte
    for (const int64_t bytes = BytesOf(dtype, count); at < static_cast<unsigned char*>(data) + bytes;) *at++ = static_cast<unsigned char>(Roll(256));
    return;
  }
  const int64_t bytes = BytesOf(dtype, 1);
  for (int64_t i = 0; i < count; ++i, at += bytes) {
    uint64_t bits = 0;
    const double number = static_cast<double>(Roll(1000)) / 250.0 - 2.0;
    if (dtype == WEFT_F32 || dtype == WEFT_BF16) {
      const auto value = static_cast<float>(number);
      uint32_t word;
      std::memcpy(&word, &value, 4);
      bits = dtype == WEFT_F32 ? word : word >> 16;
    } else if (dtype == WEFT_F64) {
      std::memcpy(&bits, &number, 8);
    } else if (dtype == WEFT_F16) {
      bits = 0x3800u + static_cast<uint64_t>(Roll(0x800)) + (OneIn(2) ? 0x8000u : 0);  // 0.5 to 2
    } else if (dtype == WEFT_BOOL) {
      bits = static_cast<uint64_t>(Roll(2));
    } else {
      bits = static_cast<uint64_t>(low < high ? low + Roll(static_cast<int>(high - low)) : Roll(4));
    }
    std::memcpy(at, &bits, static_cast<size_t>(bytes));
  }
}

weft_tensor* Fuzz::MakeTensor(uint32_t dtype, const int64_t* dims, int rank, int64_t low, int64_t high) {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims[i];
  const size_t size = static_cast<size_t>(BytesOf(dtype, count));
  if (size == 0 && count != 0) return nullptr;
  void* const data = Block(size);
  Fill(data, dtype, count, low, high);
  weft_tensor* made = nullptr;
  if (!Helped(weft_tensor_from_host(Context(), nullptr, static_cast<weft_dtype>(dtype), dims, static_cast<size_t>(rank), data, size, &made))) {
    return nullptr;
  }
  made_.push_back(made);
  if ((dtype == WEFT_F32 || dtype == WEFT_F64) && OneIn(6)) Helped(weft_tensor_require_grad(made, 1));
  return made;
}

}  // namespace weft::fuzz
