// How far every elementwise operation of floats is from the exact result, in ULPs of the result's type, as a user of the C API
// gets it, on every instruction-set path of this machine. f32: all 2^32 inputs (2^27 pairs for two operands), judged by glibc's
// double functions; f64: 10^8 points, judged by glibc's long double functions and the worst of them again by its _Float128
// ones; bf16, f16: all 65,536 inputs, counted where they are not the exact result rounded once. What glibc has not is judged by
// accuracy/special.h. `--markdown` writes the table of docs/accuracy.md.
#include <weft.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <sstream>

#include "accuracy/exact.h"
#include "bench_util.h"

namespace {

using namespace accuracy;

std::string Title(const Op& op) { return op.attributes[0] == 0 ? op.name : std::string(op.name) + " " + op.attributes; }

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

// Parses an attribute of a call, such as "form=tanh", "exponent=3" or "beta=2.0".
weft_attr Attribute(const std::string& text) {
  weft_attr attr = {};
  const char* value = text.c_str() + text.find('=') + 1;
  attr.name = text.c_str();
  attr.name_length = value - 1 - attr.name;
  if (std::isalpha(value[0]) != 0) {
    attr.type = WEFT_VALUE_TEXT;
    attr.data = value;
    attr.count = std::strlen(value);
  } else if (std::strchr(value, '.') != nullptr) {
    attr.type = WEFT_VALUE_DOUBLE;
    attr.d = std::atof(value);
  } else {
    attr.type = WEFT_VALUE_INT;
    attr.i = std::atoi(value);
  }
  return attr;
}

void Run(weft_context* context, const Op& op, const Format& format, const std::vector<uint8_t>* operands, size_t count,
         std::vector<uint8_t>* result) {
  weft_tensor *in[2] = {}, *out = nullptr;
  const int64_t dims[] = {static_cast<int64_t>(count)};
  for (int i = 0; i < op.operands; ++i) {
    Check(weft_tensor_from_host(context, nullptr, format.dtype, dims, 1, operands[i].data(), count * format.bytes, &in[i]));
  }
  std::vector<std::string> texts;
  std::istringstream said(op.attributes);
  for (std::string text; said >> text;) texts.push_back(text);
  std::vector<weft_attr> attrs;
  for (const std::string& text : texts) attrs.push_back(Attribute(text));
  size_t outputs = 0;
  Check(weft_op_apply(context, op.name, WEFT_STRLEN, in, op.operands, attrs.data(), attrs.size(), &out, 1, &outputs));
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

// A point of an operation's interval, half of them evenly, half evenly in their logarithm. The order of polygamma is whole, the second
// operand of zeta may be below 1.
uint64_t InsidePoint(const Op& op, const Format& format, int64_t i, int k) {
  const double unit = std::ldexp(static_cast<double>(Mix(i * 2 + k) >> 11), -53);
  double x = i % 2 == 0 && op.low > 0 ? op.low * std::pow(op.high / op.low, unit) : op.low + unit * (op.high - op.low);
  if (op.function == kPolygamma && k == 0) x = std::floor(unit * 7);
  if (op.function == kZeta && k == 1) x -= 1;
  return Encode(format, x);
}

// The bits of point `i`, operand k; of f32, every step-th pattern, 0: a sample.
uint64_t Point(const Op& op, const Format& format, int64_t i, int k, int64_t step) {
  if (op.within) return InsidePoint(op, format, i, k);
  if (format.bytes == 2) return k == 1 ? Mix(i * 2 + 1) : step == 0 && op.special() ? i * 16 + Mix(i) % 16 : i;
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
    if (step_ == 0 && op.special()) return 1 << 12;
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
          if (format.bytes == 8 && bad.ulps < kWrong) bad.ulps = Again(op, format, bad);
          total.Add(bad, 1);
        }
      }
      result.paths.push_back(total);
    }
    return result;
  }

 private:
  static double Again(const Op& op, const Format& format, const Bad& bad) {
    const Quad x = bad.x, y = bad.y, exact = Exact<Quad>(op, format, x, y, bad.got);
    return Ulps(format, bad.got, exact, SizeOf<Quad>(op, format, x, y, exact));
  }

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
      const T x = Decode(format, at(operands[0], i));
      const T y = op.operands == 2 ? Decode(format, at(operands[1], i)) : 0;
      uint64_t last_bits = 0;
      double last = -1;
      T exact = 0;
      uint64_t nearest = ~uint64_t{0};
      if (sizeof(T) == 8 && !op.asks_result()) {
        exact = Exact<T>(op, format, x, y, 0);
        nearest = __builtin_bit_cast(uint32_t, static_cast<float>(exact));
      }
      for (size_t p = 0; p < results.size(); ++p) {
        const uint64_t bits = at(results[p], i);
        if (bits == nearest && floor[p] >= 0.5) continue;  // most of them
        if (last < 0 || bits != last_bits) {
          const double got = Decode(format, bits);
          if (op.asks_result() || (p == 0 && sizeof(T) > 8)) exact = Exact<T>(op, format, x, y, got);
          last_bits = bits;
          last = Ulps(format, got, exact, SizeOf<T>(op, format, x, y, exact));
        }
        wrong[p] += last > 0.5 + 1e-12;  // a slope of 0.01 is itself rounded
        if (last <= floor[p]) continue;
        (*scores)[p].Add({last, static_cast<double>(x), static_cast<double>(y), Decode(format, bits)}, kept);
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

constexpr std::string_view kTable = "## Element by element\n";

std::string TableRow(const Result& r) {
  const bool half = r.format->bytes == 2;
  const std::string points = r.points == int64_t{1} << 32 ? "2^32" : r.points == 100'000'000 ? "10^8" : std::to_string(r.points);
  std::string row = "| " + Title(*r.op) + " | " + r.format->name + " | " + points + " | " + (half ? "0 wrong" : Figure(BoundOf(r))) + " |";
  for (const Score& score : r.paths) row += " " + (half ? std::to_string(score.wrong) + " wrong" : Figure(score.worst[0].ulps)) + " |";
  const Bad& worst = r.paths[0].worst[0];
  return row + " " + (worst.ulps == 0 || (half && r.paths[0].wrong == 0) ? "" : At(r, worst)) + " |\n";
}

// Writes the page's table anew. Its text stays, and so do rows of what was not judged now.
bool WriteMarkdown(const std::string& path, const std::vector<Result>& results, const std::vector<std::string>& isas) {
  std::ifstream in(path);
  std::stringstream before;
  before << in.rdbuf();
  const std::string page = before.str();
  const size_t at = page.find(kTable);
  if (at == std::string::npos) return false;
  std::string header = "\n| operation | type | operands | bound |", rule = "|---|---|---:|---:|";
  for (const std::string& isa : isas) {
    header += " " + isa + " |";
    rule += "---:|";
  }
  std::string text = page.substr(0, at) + std::string(kTable) + header + " worst at |\n" + rule + "---|\n";
  for (const Op& op : kOps) {
    for (const Format& format : kFormats) {
      const auto judged = std::find_if(results.begin(), results.end(), [&](const Result& r) { return r.op == &op && r.format == &format; });
      if (judged != results.end()) {
        text += TableRow(*judged);
      } else if (const size_t row = page.find("\n| " + Title(op) + " | " + format.name + " |", at); row != std::string::npos) {
        text += page.substr(row + 1, page.find('\n', row + 1) - row);
      }
    }
  }
  std::ofstream out(path);
  out << text;
  return static_cast<bool>(out.flush());
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

// Prints 36 digits of x.
std::string Digits(Quad x) {
  char text[64];
  strfromf128(text, sizeof text, "%.36g", x);
  return text;
}

// The judge's word on operands of f64, for the test that compares it with mpmath.
int PrintExact(const std::vector<std::string>& words) {
  const Op* op = std::find_if(std::begin(kOps), std::end(kOps), [&](const Op& o) { return !words.empty() && words[0] == o.name; });
  if (op == std::end(kOps) || (words.size() - 1) % op->operands != 0) {
    std::fputs("accuracy: --exact wants an operation of --list and its operands\n", stderr);
    return 2;
  }
  const Format& format = kFormats[1];
  for (size_t i = 1; i < words.size(); i += op->operands) {
    const double x = std::strtod(words[i].c_str(), nullptr), y = op->operands == 2 ? std::strtod(words[i + 1].c_str(), nullptr) : 0;
    const auto got = static_cast<double>(Exact<long double>(*op, format, x, y, 1));  // what inverses start from
    const auto exact = Exact<long double>(*op, format, x, y, got);
    const Quad quad = Exact<Quad>(*op, format, x, y, got);
    std::printf("%s %s\n", Digits(exact).c_str(), Digits(quad).c_str());
  }
  return 0;
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
    if (option == "--exact") return PrintExact({options.rest.begin() + i + 1, options.rest.end()});
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
               "       accuracy --exact OP X... (two operands: X Y X Y...)\n"
               "The full sweep takes two to three hours of one core; --quick takes a sample in seconds, --step N (odd) every N-th\n"
               "point. --keep notes what is done, and a later run with the same file goes on from there. --markdown writes the table of an\n"
               "existing page anew and leaves rows of what was not judged. --exact prints what the judge says in long double and in quad.\n"
               "Ends with 1 if a bound is exceeded.\n",
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
    std::fprintf(stderr, "accuracy: cannot write the table of %s, which must have a line \"## Element by element\"\n", markdown.c_str());
    return 1;
  }
  return rc;
}
