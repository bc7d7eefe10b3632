// How far every elementwise operation of floats is from the exact result, in ULPs of the result's type, as a user of the C API
// gets it, on every instruction-set path of this machine. f32: all 2^32 inputs (2^27 pairs for two operands), judged by glibc's
// double functions; f64: 10^8 points, judged by glibc's long double functions and the worst of them again by its _Float128
// ones; bf16, f16: all 65,536 inputs, counted where they are not the exact result rounded once. `--markdown` writes
// docs/accuracy.md.
#include <math.h>
#include <weft.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "bench_util.h"

// glibc's quad functions, which <math.h> hides from some compilers.
extern "C" {
#define WEFT_QUAD(name) __float128 name(__float128) noexcept;
WEFT_QUAD(expf128) WEFT_QUAD(exp2f128) WEFT_QUAD(expm1f128) WEFT_QUAD(logf128) WEFT_QUAD(log2f128) WEFT_QUAD(log1pf128)
WEFT_QUAD(tanhf128) WEFT_QUAD(erff128) WEFT_QUAD(erfcf128) WEFT_QUAD(sinf128) WEFT_QUAD(cosf128) WEFT_QUAD(tanf128)
WEFT_QUAD(cbrtf128) WEFT_QUAD(sqrtf128)
#undef WEFT_QUAD
__float128 powf128(__float128, __float128) noexcept;
__float128 atan2f128(__float128, __float128) noexcept;
}

namespace {

using Quad = __float128;

// --- the judge: one formula in three widths -------------------------------------------------------------------------
#define WEFT_MATH(name)                                                  \
  double M_##name(double x) { return ::name(x); }                        \
  long double M_##name(long double x) { return ::name##l(x); }           \
  Quad M_##name(Quad x) { return ::name##f128(x); }
WEFT_MATH(exp) WEFT_MATH(exp2) WEFT_MATH(expm1) WEFT_MATH(log) WEFT_MATH(log2) WEFT_MATH(log1p) WEFT_MATH(tanh)
WEFT_MATH(erf) WEFT_MATH(erfc) WEFT_MATH(sin) WEFT_MATH(cos) WEFT_MATH(tan) WEFT_MATH(cbrt) WEFT_MATH(sqrt)
#undef WEFT_MATH
double M_pow(double x, double y) { return ::pow(x, y); }
long double M_pow(long double x, long double y) { return ::powl(x, y); }
Quad M_pow(Quad x, Quad y) { return ::powf128(x, y); }
double M_atan2(double x, double y) { return ::atan2(x, y); }
long double M_atan2(long double x, long double y) { return ::atan2l(x, y); }
Quad M_atan2(Quad x, Quad y) { return ::atan2f128(x, y); }

template <typename T>
T Magnitude(T x) { return x < 0 ? -x : x; }
// To 106 bits, in two halves.
template <typename T>
constexpr T kRootHalf = static_cast<T>(0x1.6a09e667f3bcdp-1) + static_cast<T>(-0x1.bdd3413b26456p-55);
template <typename T>
constexpr T kHalfRootPi = static_cast<T>(0x1.c5bf891b4ef6bp-1) + static_cast<T>(-0x1.618f13eb7ca89p-55);
template <typename T>
constexpr T kRoot8OverPi = static_cast<T>(0x1.9884533d43651p+0) + static_cast<T>(-0x1.cbc0d30ebfd15p-54);  // 2 sqrt(2 / pi)

template <typename T>
T Logistic(T x) {
  const T e = M_exp(-Magnitude(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

// The inverse through its inverse: Newton steps from what is judged, y, until the next would change less than 1e-12.
template <typename T>
T ErfInv(T x, double y) {
  const T a = Magnitude(x);
  if (!(a < 1)) return a == 1 ? x * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (a < static_cast<T>(1e-18) || !(std::fabs(y) < 30)) return x * kHalfRootPi<T>;
  T b = Magnitude(static_cast<T>(y)), step;
  int steps = 0;
  do {
    const T error = a < static_cast<T>(0.5) ? M_erf(b) - a : (1 - a) - M_erfc(b);
    step = error * kHalfRootPi<T> * M_exp(b * b);
    b -= step;
  } while (Magnitude(step) > b * static_cast<T>(1e-6) && ++steps < 8);
  return x < 0 ? -b : b;
}

enum Function {
  kAbs, kCbrt, kCeil, kCos, kErf, kErfInv, kExp, kExp2, kExpm1, kFloor, kLog, kLog1p, kLog2, kNeg, kRound, kRoundAway, kRsqrt,
  kSigmoid, kSign, kSin, kSqrt, kSquare, kCube, kTan, kTanh, kTrunc, kElu, kGelu, kGeluTanh, kLeakyRelu, kRelu, kRelu6, kSilu,
  kSoftplus, kStopGradient, kAdd, kAtan2, kDiv, kMul, kPow, kSub
};

// The exact result at (x, y); `got` is what is judged.
template <typename T>
T Exact(Function function, T x, T y, double got) {
  switch (function) {
    case kAbs: return Magnitude(x) + 0;
    case kCbrt: return M_cbrt(x);
    case kCeil: return ::ceil(static_cast<double>(x));  // exact in every type
    case kCos: return M_cos(x);
    case kErf: return M_erf(x);
    case kErfInv: return ErfInv(x, got);
    case kExp: return M_exp(x);
    case kExp2: return M_exp2(x);
    case kExpm1: return M_expm1(x);
    case kFloor: return ::floor(static_cast<double>(x));
    case kLog: return M_log(x);
    case kLog1p: return M_log1p(x);
    case kLog2: return M_log2(x);
    case kNeg: return -x;
    case kRound: return ::nearbyint(static_cast<double>(x));
    case kRoundAway: return ::round(static_cast<double>(x));
    case kRsqrt: return 1 / M_sqrt(x);
    case kSigmoid: return Logistic(x);
    case kSign: return x > 0 ? T(1) : x < 0 ? T(-1) : x;
    case kSin: return M_sin(x);
    case kSqrt: return M_sqrt(x);
    case kSquare: return x * x;
    case kCube: return x * x * x;
    case kTan: return M_tan(x);
    case kTanh: return M_tanh(x);
    case kTrunc: return ::trunc(static_cast<double>(x));
    case kElu: return x > 0 ? x : M_expm1(x);
    case kGelu: return x * M_erfc(-x * kRootHalf<T>) / 2;
    case kGeluTanh: return x * Logistic(kRoot8OverPi<T> * (x + (static_cast<T>(44715) / 1000000) * x * x * x));
    case kLeakyRelu: return x > 0 ? x : x * 0.01;
    case kRelu: return x > 0 || x != x ? x : T(0);  // of two zeros the positive one
    case kRelu6: return x > 6 ? T(6) : x > 0 || x != x ? x : T(0);
    case kSilu: {
      const T e = M_exp(-Magnitude(x));
      return x < 0 ? x * e / (1 + e) : x / (1 + e);
    }
    case kSoftplus: return (x > 0 ? x : T(0)) + M_log1p(M_exp(-Magnitude(x)));
    case kStopGradient: return x;
    case kAdd: return x + y;
    case kAtan2: return M_atan2(x, y);
    case kDiv: return x / y;
    case kMul: return x * y;
    case kPow: return M_pow(x, y);
    case kSub: return x - y;
  }
  return x;
}

// --- what is judged -------------------------------------------------------------------------------------------------
struct Op {
  const char* name;       // of weft_op_apply
  const char* attribute;  // "form=tanh"; empty: none
  Function function;
  double f32, f64;        // bounds in ULPs; 0.5: correctly rounded
  double low, high;       // where half of the f64 points lie
  int operands = 1;
};
constexpr Op kOps[] = {
    {"abs", "", kAbs, 0, 0, -2, 2},
    {"cbrt", "", kCbrt, 1, 1.5, -100, 100},
    {"ceil", "", kCeil, 0, 0, -100, 100},
    {"cos", "", kCos, 1, 1, -100, 100},
    {"erf", "", kErf, 1.5, 1.5, -6, 6},
    {"erf_inv", "", kErfInv, 2, 2, -1, 1},
    {"exp", "", kExp, 1, 1, -745, 710},
    {"exp2", "", kExp2, 1, 1, -1075, 1025},
    {"expm1", "", kExpm1, 1, 1, -40, 710},
    {"floor", "", kFloor, 0, 0, -100, 100},
    {"log", "", kLog, 1, 1, 0, 4},
    {"log1p", "", kLog1p, 1, 1, -1, 4},
    {"log2", "", kLog2, 1, 1, 0, 4},
    {"neg", "", kNeg, 0, 0, -2, 2},
    {"round", "", kRound, 0, 0, -100, 100},
    {"round_away", "", kRoundAway, 0, 0, -100, 100},
    {"rsqrt", "", kRsqrt, 1.5, 1.5, 0, 100},
    {"sigmoid", "", kSigmoid, 2, 2, -710, 40},
    {"sign", "", kSign, 0, 0, -2, 2},
    {"sin", "", kSin, 1, 1, -100, 100},
    {"sqrt", "", kSqrt, 0.5, 0.5, 0, 100},
    {"square", "", kSquare, 0.5, 0.5, -100, 100},
    {"integer_pow", "exponent=3", kCube, 1.5, 1.5, -100, 100},
    {"tan", "", kTan, 1.5, 1, -100, 100},
    {"tanh", "", kTanh, 2, 2, -20, 20},
    {"trunc", "", kTrunc, 0, 0, -100, 100},
    {"elu", "", kElu, 1, 1, -40, 40},
    {"gelu", "", kGelu, 2, 2, -38, 8},
    {"gelu", "form=tanh", kGeluTanh, 2, 2, -22, 8},
    {"leaky_relu", "", kLeakyRelu, 1.5, 1, -100, 100},
    {"relu", "", kRelu, 0, 0, -2, 2},
    {"relu6", "", kRelu6, 0, 0, -10, 10},
    {"silu", "", kSilu, 2, 2, -745, 40},
    {"softplus", "", kSoftplus, 2, 2, -745, 40},
    {"stop_gradient", "", kStopGradient, 0, 0, -2, 2},
    {"add", "", kAdd, 0.5, 0.5, -100, 100, 2},
    {"atan2", "", kAtan2, 1, 1, -100, 100, 2},
    {"div", "", kDiv, 0.5, 0.5, -100, 100, 2},
    {"mul", "", kMul, 0.5, 0.5, -100, 100, 2},
    {"pow", "", kPow, 1, 1, 0, 40, 2},
    {"sub", "", kSub, 0.5, 0.5, -100, 100, 2},
};

std::string Title(const Op& op) { return op.attribute[0] == 0 ? op.name : std::string(op.name) + " " + op.attribute; }

// --- element types --------------------------------------------------------------------------------------------------
struct Format {
  const char* name;
  weft_dtype dtype;
  int bytes, digits, min_exponent, max_exponent;  // 2^min is the smallest normal number, 2^max is past the largest
};
constexpr Format kFormats[] = {{"f32", WEFT_F32, 4, 24, -126, 128},
                               {"f64", WEFT_F64, 8, 53, -1022, 1024},
                               {"bf16", WEFT_BF16, 2, 8, -126, 128},
                               {"f16", WEFT_F16, 2, 11, -14, 16}};

// With sizes that the compiler knows: a call of memcpy costs more than most functions here.
inline uint64_t Load(const std::vector<uint8_t>& bytes, int64_t i, int size) {
  uint64_t bits = 0;
  if (size == 4) {
    std::memcpy(&bits, &bytes[i * 4], 4);
  } else if (size == 8) {
    std::memcpy(&bits, &bytes[i * 8], 8);
  } else {
    std::memcpy(&bits, &bytes[i * 2], 2);
  }
  return bits;
}
inline void Store(std::vector<uint8_t>* bytes, int64_t i, int size, uint64_t bits) {
  if (size == 4) {
    std::memcpy(&(*bytes)[i * 4], &bits, 4);
  } else if (size == 8) {
    std::memcpy(&(*bytes)[i * 8], &bits, 8);
  } else {
    std::memcpy(&(*bytes)[i * 2], &bits, 2);
  }
}

inline double Decode(const Format& format, uint64_t bits) {
  if (format.bytes == 8) return __builtin_bit_cast(double, bits);
  if (format.bytes == 4) return __builtin_bit_cast(float, static_cast<uint32_t>(bits));
  if (format.digits == 8) return __builtin_bit_cast(float, static_cast<uint32_t>(bits << 16));
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double x = exponent == 31 ? (fraction != 0 ? NAN : HUGE_VAL) : exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -x : x;
}

constexpr double kWrong = 1e30;  // another NaN, infinity or sign

template <typename T>
bool IsNegative(T x) {
  return x < 0 || (x == 0 && std::signbit(static_cast<double>(x)));
}

// Distance in units of the last place of the exact result.
template <typename T>
double Ulps(const Format& format, double got, T exact) {
  if constexpr (sizeof(T) == 8) {  // 13 * 10^9 times: normal numbers of f32 without library calls
    const int exponent = static_cast<int>(__builtin_bit_cast(uint64_t, exact) >> 52 & 2047) - 1023;
    if (exponent >= -126 && exponent < 127 && std::fabs(got) < 3e38 && got != 0) {
      return std::fabs(got - exact) * __builtin_bit_cast(double, static_cast<uint64_t>(1023 + 23 - exponent) << 52);
    }
  }
  if (exact != exact || got != got) return exact != exact && got != got ? 0 : kWrong;
  const bool negative = IsNegative(exact);
  if (got == 0 && std::signbit(got) != negative) return kWrong;
  const T end = static_cast<T>(std::ldexp(1.0, format.max_exponent - 1)) * 2;
  const T magnitude = std::min(Magnitude(exact), end);
  if (format.max_exponent == 1024 && sizeof(T) == 8) return kWrong;  // f64 is judged by wider types
  T given = std::isinf(got) ? (got < 0 ? -end : end) : static_cast<T>(got);
  const T difference = Magnitude(given - (negative ? -magnitude : magnitude));
  if (difference == 0) return 0;
  int exponent = format.min_exponent;
  if (magnitude > 0) {
    const auto whole = static_cast<long double>(magnitude);
    exponent = std::max(exponent, std::min(std::ilogb(whole), format.max_exponent - 1));
  }
  return static_cast<double>(std::ldexp(static_cast<long double>(difference), format.digits - 1 - exponent));
}

// --- running --------------------------------------------------------------------------------------------------------
void Check(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "accuracy: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

weft_context* Open(const std::string& isa) {
  const weft_setting settings[] = {{"isa", WEFT_STRLEN, isa.c_str(), WEFT_STRLEN},
                                   {"threads", WEFT_STRLEN, "1", WEFT_STRLEN},
                                   {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = settings;
  options.setting_count = 3;
  weft_context* context = nullptr;
  if (weft_error* error = weft_context_create(&options, &context)) {
    weft_error_release(error);  // a path that this machine lacks
    return nullptr;
  }
  return context;
}

void Run(weft_context* context, const Op& op, const Format& format, const std::vector<uint8_t>* operands, size_t count,
         std::vector<uint8_t>* result) {
  weft_tensor *in[2] = {}, *out = nullptr;
  const int64_t dims[] = {static_cast<int64_t>(count)};
  for (int i = 0; i < op.operands; ++i) {
    Check(weft_tensor_from_host(context, nullptr, format.dtype, dims, 1, operands[i].data(), count * format.bytes, &in[i]));
  }
  weft_attr attr = {};
  const char* equals = std::strchr(op.attribute, '=');
  if (equals != nullptr) {
    attr.name = op.attribute;
    attr.name_length = equals - op.attribute;
    attr.data = equals + 1;
    attr.count = std::strlen(equals + 1);
    attr.type = WEFT_VALUE_TEXT;
    if (std::isdigit(equals[1]) != 0) {
      attr.type = WEFT_VALUE_INT;
      attr.i = std::atoi(equals + 1);
    }
  }
  size_t outputs = 0;
  Check(weft_op_apply(context, op.name, WEFT_STRLEN, in, op.operands, &attr, equals != nullptr, &out, 1, &outputs));
  result->resize(count * format.bytes);
  Check(weft_tensor_to_host(out, result->data(), result->size()));
  weft_tensor_release(out);
  for (weft_tensor* tensor : in) weft_tensor_release(tensor);
}

struct Bad {
  double ulps = 0, x = 0, y = 0, got = 0;
};
struct Score {
  std::vector<Bad> worst;  // sorted, the worst first
  int64_t wrong = 0;       // results that are not the exact one rounded once
  void Add(const Bad& bad, size_t kept) {
    const auto at = std::upper_bound(worst.begin(), worst.end(), bad, [](const Bad& a, const Bad& b) { return a.ulps > b.ulps; });
    if (at == worst.end() && worst.size() >= kept) return;
    worst.insert(at, bad);
    if (worst.size() > kept) worst.pop_back();
  }
};
struct Result {
  const Op* op = nullptr;
  const Format* format = nullptr;
  int64_t points = 0;
  std::vector<Score> paths;
};

uint64_t Mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The bits of point `i`, operand k; of f32, every step-th pattern, 0: a sample.
uint64_t Point(const Op& op, const Format& format, int64_t i, int k, int64_t step) {
  if (format.bytes == 2) return k == 0 ? i : Mix(i * 2 + 1);
  if (format.bytes == 4 && op.operands == 1) return step > 0 ? i * step : (i % 2 == 0 ? i * 65537 * 16 : Mix(i));
  const uint64_t random = Mix(i * 2 + k);
  const double unit = std::ldexp(static_cast<double>(Mix(random) >> 11), -53);
  double x = op.low + unit * (op.high - op.low);
  static constexpr double kEdges[] = {0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, NAN, 0.5, 2.0, -2.0, 3.0, 5e-324, -5e-324};
  if (static_cast<size_t>(i) < std::size(kEdges) * std::size(kEdges)) {
    x = kEdges[k == 0 ? i % std::size(kEdges) : i / std::size(kEdges)];
  } else if (i % 4 == 0) {
    return format.bytes == 8 ? random : random & 0xFFFFFFFF;  // any bits at all
  } else if (i % 8 == 1) {
    x = (1 - std::ldexp(1 + unit, -1 - static_cast<int>(random % 54))) * (random & 256 ? -1 : 1);  // close to 1
  } else if (i % 8 == 5) {
    x = std::ldexp(1 + unit, static_cast<int>(random % 72) - 64) * (random & 256 ? -1 : 1);
  }
  if (format.bytes == 8) return __builtin_bit_cast(uint64_t, x);
  return __builtin_bit_cast(uint32_t, static_cast<float>(x));
}

class Sweep {
 public:
  // Every step-th of the full sweep's points; 0: a quick sample.
  Sweep(const std::vector<std::string>& isas, int threads, int64_t step) : isas_(isas), threads_(threads), step_(step) {
    for (int t = 0; t < threads; ++t) {
      std::vector<weft_context*>& row = contexts_.emplace_back();
      for (const std::string& isa : isas) row.push_back(Open(isa));
    }
  }
  ~Sweep() {
    for (const auto& row : contexts_) {
      for (weft_context* context : row) weft_context_release(context);
    }
  }

  int64_t Points(const Op& op, const Format& format) const {
    if (format.bytes == 2) return 65536;
    if (step_ == 0) return 1 << 16;
    const int64_t all = format.bytes == 8 ? 100'000'000 : op.operands == 1 ? int64_t{1} << 32 : 1 << 27;
    return (all + step_ - 1) / step_;
  }

  Result Judge(const Op& op, const Format& format) {
    const int64_t points = Points(op, format);
    std::atomic<int64_t> next{0};
    const int64_t chunk = std::min<int64_t>(points, 1 << 16);  // stays in the second-level cache
    std::vector<std::vector<Score>> scores(threads_, std::vector<Score>(isas_.size()));
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_; ++t) {
      threads.emplace_back([&, t] {
        std::vector<uint8_t> operands[2];
        std::vector<std::vector<uint8_t>> results(isas_.size());
        for (;;) {
          const int64_t start = next.fetch_add(chunk);
          if (start >= points) break;
          const int64_t count = std::min(chunk, points - start);
          for (int k = 0; k < op.operands; ++k) {
            operands[k].resize(chunk * format.bytes);
            for (int64_t i = 0; i < chunk; ++i) {
              Store(&operands[k], i, format.bytes, Point(op, format, std::min(start + i, points - 1), k, step_));
            }
          }
          for (size_t p = 0; p < isas_.size(); ++p) Run(contexts_[t][p], op, format, operands, chunk, &results[p]);
          if (format.bytes == 4) {
            Compare<double>(op, format, operands, results, count, &scores[t]);
          } else {
            Compare<long double>(op, format, operands, results, count, &scores[t]);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    Result result{&op, &format, points, {}};
    for (size_t p = 0; p < isas_.size(); ++p) {
      Score total;
      for (auto& row : scores) {
        total.wrong += row[p].wrong;
        for (Bad bad : row[p].worst) {
          if (format.bytes == 8 && bad.ulps < kWrong) bad.ulps = Ulps(format, bad.got, Exact<Quad>(op.function, bad.x, bad.y, bad.got));
          total.Add(bad, 1);
        }
      }
      result.paths.push_back(total);
    }
    return result;
  }

 private:
  template <typename T>
  void Compare(const Op& op, const Format& format, const std::vector<uint8_t>* operands,
               const std::vector<std::vector<uint8_t>>& results, int64_t count, std::vector<Score>* scores) const {
    const auto at = [&](const std::vector<uint8_t>& bytes, int64_t i) { return Load(bytes, i, format.bytes); };
    // Counted here: what other threads write beside it costs more than the judge.
    int64_t wrong[3] = {};
    double floor[3];
    const size_t kept = format.bytes == 8 ? 64 : 1;
    const auto floor_of = [&](const Score& score) { return score.worst.size() < kept ? -1 : score.worst.back().ulps; };
    for (size_t p = 0; p < results.size(); ++p) floor[p] = floor_of((*scores)[p]);
    for (int64_t i = 0; i < count; ++i) {
      const double x = Decode(format, at(operands[0], i));
      const double y = op.operands == 2 ? Decode(format, at(operands[1], i)) : 0;
      uint64_t last_bits = 0;
      double last = -1;
      T exact = 0;
      uint64_t nearest = ~uint64_t{0};
      if (sizeof(T) == 8 && op.function != kErfInv) {
        exact = Exact<T>(op.function, x, y, 0);
        nearest = __builtin_bit_cast(uint32_t, static_cast<float>(exact));
      }
      for (size_t p = 0; p < results.size(); ++p) {
        const uint64_t bits = at(results[p], i);
        if (bits == nearest && floor[p] >= 0.5) continue;  // most of them
        if (last < 0 || bits != last_bits) {
          const double got = Decode(format, bits);
          if (op.function == kErfInv || (p == 0 && sizeof(T) > 8)) exact = Exact<T>(op.function, x, y, got);
          last_bits = bits;
          last = Ulps(format, got, exact);
        }
        wrong[p] += last > 0.5 + 1e-12;  // a slope of 0.01 is itself rounded
        if (last <= floor[p]) continue;
        (*scores)[p].Add({last, x, y, Decode(format, bits)}, kept);
        floor[p] = floor_of((*scores)[p]);
      }
    }
    for (size_t p = 0; p < results.size(); ++p) (*scores)[p].wrong += wrong[p];
  }

  std::vector<std::string> isas_;
  int threads_;
  int64_t step_;
  std::vector<std::vector<weft_context*>> contexts_;
};

// --- reporting ------------------------------------------------------------------------------------------------------
std::string Figure(double ulps) {
  char text[32];
  std::snprintf(text, sizeof text, ulps >= kWrong ? "WRONG" : ulps == 0 ? "0" : ulps < 10 ? "%.3f" : "%.0f", ulps);
  return text;
}
double BoundOf(const Result& r) { return r.format->bytes == 2 ? 0.5 : r.format->bytes == 4 ? r.op->f32 : r.op->f64; }
// Long double knows f64's rounding to 2^-11, and so does double f32's to 2^-29.
constexpr double kSlack = 0.002;

std::string At(const Result& r, const Bad& bad) {
  char text[96];
  const int digits = r.format->bytes == 8 ? 17 : r.format->bytes == 4 ? 9 : 5;
  if (r.op->operands == 2) {
    std::snprintf(text, sizeof text, "(%.*g, %.*g)", digits, bad.x, digits, bad.y);
  } else {
    std::snprintf(text, sizeof text, "%.*g", digits, bad.x);
  }
  return text;
}

bool WriteMarkdown(const std::string& path, const std::vector<Result>& results, const std::vector<std::string>& isas) {
  FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file,
               "# Accuracy of the elementwise operations\n\n"
               "The largest distance from the exact result, in units of the last place of the result's type, as a caller of the C API\n"
               "gets it on the CPU, by instruction-set path; beside it the operand where the first path has it. Made by\n"
               "`build/release/bin/accuracy --markdown docs/accuracy.md` on %s; `--quick` checks a sample against the bounds in seconds, and a test does.\n\n"
               "* f32: all 2^32 operands, for two operands 2^27 pairs; judged by glibc's double functions.\n"
               "* f64: 10^8 operands or pairs: half in the operation's interesting interval, a quarter any bits, an eighth any magnitude\n"
               "  from 2^-64 to 2^8, an eighth any distance from 1 and -1; judged by glibc's long double functions, the 64 worst of each thread again by its `_Float128` ones.\n"
               "* bf16, f16: all 65,536 operands; the figure is how many results are not the exact one rounded once.\n\n"
               "The column says how many a row has seen; `--step N` sees every N-th.\n\n"
               "0.500 is correctly rounded. NaN for NaN, infinities and the signs of zeros are checked everywhere; a difference would read\n"
               "WRONG. Functions are within 2 ULP. In f32 the AVX paths compute the functions in f32, the\n"
               "portable one in f64.\n\n"
               "Not swept yet, only compared with NumPy on samples and edges (`tests/ops/numpy_formulas.py`): `acos`, `acosh`, `angle`,\n"
               "`asin`, `asinh`, `atan`, `atanh`, `bessel_i0e`, `bessel_i1e`, `celu`, `cosh`, `deg2rad`, `digamma`, `entr`, `erfc`,\n"
               "`floor_divide`, `frac`, `hardshrink`, `hardsigmoid`, `hardswish`, `hardtanh`, `heaviside`, `hypot`, `ldexp`, `lgamma`,\n"
               "`log10`, `logaddexp`, `logaddexp2`, `logit`, `logsigmoid`, `mish`, `mod`, `nextafter`, `polygamma`, `prelu`, `rad2deg`,\n"
               "`reciprocal`, `round_decimals`, `selu`, `sinc`, `sinh`, `softplus_beta`, `softshrink`, `softsign`, `tanhshrink`,\n"
               "`threshold`, `trunc_divide`, `xlog1py`, `xlogy`, `zeta`.\n"
               "\n"
               "## Sums\n"
               "\n"
               "With u half a unit in the last place of 1 (2^-24 for f32, 2^-53 for f64), a sum computed as below differs from the exact one by at most\n"
               "d u times the sum of the magnitudes; d, the additions that one element goes through, is\n"
               "\n"
               "| sum | d |\n"
               "|---|---|\n"
               "| `sum`, `mean`, norms, gradients of biases: n elements | 200 + log2(n) |\n"
               "| windows (`avg_pool`, `reduce_window`): n elements | 1,024, above 1,024 elements as `sum` |\n"
               "| products: n steps of K | 1,100 + log2(n), of bf16 2,200 + log2(n) |\n"
               "| gradients of convolution kernels: n pixels | 2,200 + n / 130,000 |\n"
               "\n"
               "Elements are added in blocks whose length is bounded, blocks in pairs, and pairs in pairs, as sizes alone say. So a sum of alike numbers does\n"
               "not drift: its error is that of one block. Sums of f16 and bf16 are kept in f32 and rounded once. `tests/cpu/long_sums_test.cc` holds it.\n"
               "\n"
               "`layer_norm`, `rms_norm`, `batch_norm`, `var`, `std` and their gradients are right wherever their results and the sum of elements are in the type's range, though squares\n"
               "may not be (`std` of 1e30, `rms_norm` of 1e18): where a mean of squares comes out too large or too small, it is made again of elements times a power\n"
               "of two. Rows for which that is not so keep their bits. `tests/cpu/norm_range_test.cc` holds it.\n"
               "\n"
               "## Element by element\n"
               "\n| operation | type | operands | bound |",
               bench::Machine().c_str());
  for (const std::string& isa : isas) std::fprintf(file, " %s |", isa.c_str());
  std::fprintf(file, " worst at |\n|---|---|---:|---:|");
  for (size_t i = 0; i < isas.size(); ++i) std::fprintf(file, "---:|");
  std::fprintf(file, "---|\n");
  for (const Result& r : results) {
    const bool half = r.format->bytes == 2;
    const std::string points = r.points == int64_t{1} << 32 ? "2^32" : r.points == 100'000'000 ? "10^8" : std::to_string(r.points);
    std::fprintf(file, "| %s | %s | %s | %s |", Title(*r.op).c_str(), r.format->name, points.c_str(), half ? "0 wrong" : Figure(BoundOf(r)).c_str());
    for (const Score& score : r.paths) {
      std::fprintf(file, " %s |", half ? (std::to_string(score.wrong) + " wrong").c_str() : Figure(score.worst[0].ulps).c_str());
    }
    const Bad& worst = r.paths[0].worst[0];
    std::fprintf(file, " %s |\n", worst.ulps == 0 || (half && r.paths[0].wrong == 0) ? "" : At(r, worst).c_str());
  }
  return std::fclose(file) == 0;
}

// Finished rows of a sweep, so that it may run in pieces: title, type, points, then for each path its worst and how many wrong.
std::string KeyOf(const Op& op, const Format& format) {
  std::string key = Title(op) + "," + format.name + ",";
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}
bool ReadKept(const std::string& path, const Op& op, const Format& format, size_t paths, int64_t points, Result* result) {
  std::ifstream file(path);
  std::string line;
  const std::string key = KeyOf(op, format);
  while (std::getline(file, line)) {
    if (line.rfind(key, 0) != 0) continue;
    const char* text = line.c_str() + key.size();
    char* end = nullptr;
    *result = Result{&op, &format, std::strtoll(text, &end, 10), std::vector<Score>(paths)};
    for (Score& score : result->paths) {
      Bad bad;
      for (double* field : {&bad.ulps, &bad.x, &bad.y, &bad.got}) *field = std::strtod(end + 1, &end);
      score.wrong = std::strtoll(end + 1, &end, 10);
      score.worst.push_back(bad);
    }
    if (result->points >= points) return true;
  }
  return false;
}
void Keep(const std::string& path, const Result& r) {
  std::ofstream file(path, std::ios::app);
  file << KeyOf(*r.op, *r.format) << r.points;
  char text[160];
  for (const Score& score : r.paths) {
    const Bad& bad = score.worst[0];
    std::snprintf(text, sizeof text, ",%.17g,%.17g,%.17g,%.17g,%lld", bad.ulps, bad.x, bad.y, bad.got, static_cast<long long>(score.wrong));
    file << text;
  }
  file << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  bench::Options options = bench::Parse(argc, argv);
  std::vector<std::string> only, types, isas;
  std::string markdown, kept;
  int step = 1;
  bool bad = false, list = false;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    const std::string& option = options.rest[i];
    if (option == "--list") {
      list = true;
      continue;
    }
    std::vector<std::string>* into = option == "--only" ? &only : option == "--dtype" ? &types : option == "--isa" ? &isas : nullptr;
    const bool known = into != nullptr || option == "--markdown" || option == "--keep" || option == "--step";
    if (!known || i + 1 == options.rest.size()) {
      bad = true;
      break;
    }
    const std::string& value = options.rest[++i];
    if (option == "--step") {
      step = bench::Count(value);
      bad = bad || step % 2 == 0;
    } else if (into == nullptr) {
      (option == "--keep" ? kept : markdown) = value;
    } else {
      into->push_back(value);
    }
  }
  const auto wanted = [](const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : only) bad = bad || std::none_of(std::begin(kOps), std::end(kOps), [&](const Op& op) { return name == op.name; });
  for (const std::string& name : types) bad = bad || std::none_of(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return name == f.name; });
  if (options.help || bad) {
    std::fputs("usage: accuracy [--quick] [--only OP]... [--dtype f32|f64|bf16|f16]... [--isa avx512|avx2|portable]...\n"
               "                [--markdown FILE] [--keep FILE] [--step N] [--list] [--json] [--help]\n"
               "The full sweep takes two to three hours of one core; --quick takes a sample in seconds, --step N (odd) every N-th\n"
               "point. --keep notes what is done, and a later run with the same file goes on from there. Ends with 1 if a bound is exceeded.\n",
               options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  if (list) {
    for (const Op& op : kOps) std::printf("%s\n", op.name);
    return 0;
  }
  std::vector<std::string> paths;
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    if (!wanted(isas, isa)) continue;
    weft_context* context = Open(isa);
    if (context != nullptr) paths.push_back(isa);
    weft_context_release(context);
  }
  if (paths.empty()) {
    std::fputs("accuracy: this machine has none of the paths asked for\n", stderr);
    return 1;
  }
  Sweep sweep(paths, options.threads, options.quick ? 0 : step);
  std::vector<Result> results;
  std::vector<bench::Row> rows;
  int rc = 0;
  for (const Op& op : kOps) {
    if (!wanted(only, op.name)) continue;
    for (const Format& format : kFormats) {
      if (!wanted(types, format.name)) continue;
      const auto start = bench::Clock::now();
      Result r;
      if (kept.empty() || !ReadKept(kept, op, format, paths.size(), sweep.Points(op, format), &r)) {
        r = sweep.Judge(op, format);
        if (!kept.empty()) Keep(kept, r);
      }
      if (!options.quick) std::fprintf(stderr, "%-24s %-5s %6.1f s", Title(op).c_str(), format.name, bench::Since(start));
      for (size_t p = 0; p < paths.size(); ++p) {
        const Score& score = r.paths[p];
        const double worst = score.worst[0].ulps, bound = BoundOf(r) + kSlack;
        const bool exceeded = format.bytes == 2 ? score.wrong != 0 : worst > bound;
        if (!options.quick) std::fprintf(stderr, "  %s %s", paths[p].c_str(), Figure(worst).c_str());
        if (!options.quick && format.bytes == 2) std::fprintf(stderr, " (%lld wrong)", static_cast<long long>(score.wrong));
        rows.push_back({Title(op) + " " + format.name + " " + paths[p], worst, "ULP", BoundOf(r), bound > 0 ? worst / bound : 0, {}});
        if (!exceeded) continue;
        rc = 1;
        std::fprintf(stderr, "%s%s %s %s: %s ULP at %s, which gives %.17g; %lld results are not rounded correctly; the bound is %s ULP\n",
                     options.quick ? "" : "\n", Title(op).c_str(), format.name, paths[p].c_str(), Figure(worst).c_str(),
                     At(r, score.worst[0]).c_str(), score.worst[0].got, static_cast<long long>(score.wrong), Figure(BoundOf(r)).c_str());
      }
      if (!options.quick) std::fputc('\n', stderr);
      results.push_back(std::move(r));
    }
  }
  bench::Print(rows, options);
  if (!markdown.empty() && !WriteMarkdown(markdown, results, paths)) {
    std::fprintf(stderr, "accuracy: cannot write %s\n", markdown.c_str());
    return 1;
  }
  return rc;
}
