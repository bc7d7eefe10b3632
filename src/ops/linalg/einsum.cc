// einsum and tensordot: sums of products by labels of dimensions, as products of two tensors at a time.
#include <algorithm>
#include <functional>
#include <map>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kFactors[] = {{"xs", kEveryType, "factors", false, true}};
constexpr OperandDef kPair[] = {{"x", kEveryType, "first factor"}, {"y", kEveryType, "second factor"}};
constexpr AttrDef kEquationAttrs[] = {
    {"equation", AttrType::kString,
     "a letter a dimension, operands parted by commas, and behind -> the result: \"bij,bjk->bik\"", true}};
constexpr AttrDef kTensordotAttrs[] = {
    {"x_dims", AttrType::kInts, "dimensions of x that are summed over; negative ones count from the end", true},
    {"y_dims", AttrType::kInts, "the same of y, in the same order", true}};

// Dimensions by label: letters as themselves, those of an ellipsis from the last one back as -1, -2, ….
using Labels = Ints;

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool In(const Labels& labels, int64_t label) { return std::ranges::find(labels, label) != labels.end(); }
std::string LabelName(int64_t label) {
  return label < 0 ? std::string("...") : std::string(1, static_cast<char>(label));
}

// One part of the equation, whose ellipsis stands for `beyond` dimensions.
absl::StatusOr<Labels> ReadPart(std::string_view part, int64_t beyond) {
  Labels labels;
  bool dots = false;
  for (size_t i = 0; i < part.size(); ++i) {
    if (IsLetter(part[i])) {
      labels.push_back(part[i]);
    } else if (part.substr(i, 3) == "..." && !dots) {
      dots = true;
      i += 2;
      for (int64_t d = beyond; d > 0; --d) labels.push_back(-d);
    } else {
      return UserError("equation part '", part, "' has '", part.substr(i, 1),
                       "' where a letter or one '...' is expected");
    }
  }
  return labels;
}

// Letters in the part, and whether there is an ellipsis.
struct Counted {
  int64_t letters = 0;
  bool dots = false;
};
Counted CountOfPart(std::string_view part) {
  return {std::ranges::count_if(part, IsLetter), part.find("...") != std::string_view::npos};
}

absl::StatusOr<Equation> ReadEquation(std::string_view text, std::span<const Type* const> operands) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ') plain += c;
  }
  std::string_view left = plain, right;
  const size_t arrow = left.find("->");
  if (arrow != std::string_view::npos) {
    right = left.substr(arrow + 2);
    left = left.substr(0, arrow);
  }
  std::vector<std::string_view> parts;
  for (size_t comma; (comma = left.find(',')) != std::string_view::npos; left.remove_prefix(comma + 1)) {
    parts.push_back(left.substr(0, comma));
  }
  parts.push_back(left);
  if (parts.size() != operands.size()) {
    return UserError("equation '", text, "' names ", parts.size(), " operands; there are ", operands.size());
  }
  Equation e;
  int64_t most = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Counted counted = CountOfPart(parts[i]);
    const auto rank = static_cast<int64_t>(operands[i]->rank());
    if (counted.letters > rank || (!counted.dots && counted.letters != rank)) {
      return UserError("equation part '", parts[i], "' has ", counted.letters, " letters; operand ", i, " has shape ",
                       DimsToString(operands[i]->dims));
    }
    const int64_t beyond = counted.dots ? rank - counted.letters : 0;
    most = std::max(most, beyond);
    WEFT_ASSIGN_OR_RETURN(Labels labels, ReadPart(parts[i], beyond));
    e.operands.push_back(std::move(labels));
  }
  if (arrow != std::string_view::npos) {
    WEFT_ASSIGN_OR_RETURN(e.result, ReadPart(right, most));
    for (size_t i = 0; i < e.result.size(); ++i) {
      const int64_t label = e.result[i];
      const bool known = std::ranges::any_of(e.operands, [&](const Labels& own) { return In(own, label); });
      if (!known) return UserError("equation '", text, "': no operand has '", LabelName(label), "' of the result");
      if (std::count(e.result.begin(), e.result.end(), label) > 1) {
        return UserError("equation '", text, "': the result has '", LabelName(label), "' twice");
      }
    }
    return e;
  }
  // Without an arrow: the dimensions of ellipses, then letters that stand once, in their order.
  std::map<int64_t, int> times;
  for (const Labels& labels : e.operands) {
    for (const int64_t label : labels) ++times[label];
  }
  for (int64_t d = most; d > 0; --d) e.result.push_back(-d);
  // 'A' comes before 'a', as NumPy sorts them.
  for (const auto& [label, count] : times) {
    if (label > 0 && count == 1) e.result.push_back(label);
  }
  return e;
}

// The size of each label: a size of 1 goes along with any other one.
absl::StatusOr<std::map<int64_t, int64_t>> SizesOf(const Equation& e, std::span<const Type* const> operands) {
  std::map<int64_t, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::map<int64_t, int64_t> own;
    for (size_t d = 0; d < e.operands[i].size(); ++d) {
      const int64_t label = e.operands[i][d], size = operands[i]->dims[d];
      const auto [at, fresh] = own.emplace(label, size);
      if (!fresh && at->second != size) {
        return UserError("operand ", i, " has sizes ", at->second, " and ", size, " for '", LabelName(label),
                         "'; a diagonal needs equal ones");
      }
      const auto [all, first] = sizes.emplace(label, size);
      if (!first && all->second != size && all->second != 1 && size != 1) {
        return UserError("'", LabelName(label), "' has sizes ", all->second, " and ", size, " (operand ", i,
                         "); sizes must be equal or 1");
      }
      if (all->second == 1) all->second = size;
    }
  }
  return sizes;
}

absl::Status InferEinsum(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Equation e, ReadEquation(Attr<kEquationAttrs, "equation">(call.attrs), call.operands));
  WEFT_ASSIGN_OR_RETURN(const auto sizes, SizesOf(e, call.operands));
  Dims dims;
  for (const int64_t label : e.result) dims.push_back(sizes.at(label));
  results->push_back(Type::Tensor(call.operands[0]->dtype, dims));
  return absl::OkStatus();
}

// A tensor and the labels of its dimensions, each once.
struct Factor {
  Value x;
  Labels labels;
};
using Sizes = std::map<int64_t, int64_t>;

Reducer SumOf(const Value& x) { return IsBool(x.dtype()) ? Reducer::kOr : Reducer::kSum; }

// Diagonals in the place of labels that stand twice.
void TakeDiagonals(Builder& b, Factor& f) {
  for (size_t i = 0; i < f.labels.size() && f.x; ++i) {
    const auto again = std::find(f.labels.begin() + static_cast<ptrdiff_t>(i) + 1, f.labels.end(), f.labels[i]);
    if (again == f.labels.end()) continue;
    const int64_t label = f.labels[i];
    f.x = Call(b, kOp_diagonal, {f.x}, {int64_t{0}, static_cast<int64_t>(i), again - f.labels.begin()});
    f.labels.erase(again);
    f.labels.erase(f.labels.begin() + static_cast<ptrdiff_t>(i));
    f.labels.push_back(label);  // a diagonal stands behind the others
    --i;
  }
}

// Without the dimensions of size 1 that go along with larger ones, and summed over what nobody else asks for.
void Tidy(Builder& b, Factor& f, const Sizes& sizes, const std::function<bool(int64_t)>& needed) {
  if (!f.x) return;
  Labels labels;
  Dims dims;
  for (size_t d = 0; d < f.labels.size(); ++d) {
    if (f.x.dims()[d] == 1 && sizes.at(f.labels[d]) != 1) continue;
    labels.push_back(f.labels[d]);
    dims.push_back(f.x.dims()[d]);
  }
  f = {Reshape(b, f.x, dims), labels};
  Ints over;
  labels.clear();
  for (size_t d = 0; d < f.labels.size(); ++d) {
    if (needed(f.labels[d])) {
      labels.push_back(f.labels[d]);
    } else {
      over.push_back(static_cast<int64_t>(d));
    }
  }
  if (!over.empty() && f.x) f = {Reduce(b, f.x, SumOf(f.x), over), labels};
}

Labels Union(const Labels& x, const Labels& y) {
  Labels all = x;
  for (const int64_t label : y) {
    if (!In(x, label)) all.push_back(label);
  }
  return all;
}

// The product of two factors, summed over what they have in common and nobody needs any more.
Factor Product(Builder& b, const Factor& x, const Factor& y, const std::function<bool(int64_t)>& needed) {
  Ints x_batch, y_batch, x_sum, y_sum;
  Labels batch, x_free, y_free;
  for (size_t d = 0; d < x.labels.size(); ++d) {
    const auto at = std::ranges::find(y.labels, x.labels[d]);
    if (at == y.labels.end()) {
      x_free.push_back(x.labels[d]);
      continue;
    }
    const bool kept = needed(x.labels[d]);
    (kept ? x_batch : x_sum).push_back(static_cast<int64_t>(d));
    (kept ? y_batch : y_sum).push_back(at - y.labels.begin());
    if (kept) batch.push_back(x.labels[d]);
  }
  for (const int64_t label : y.labels) {
    if (!In(x.labels, label)) y_free.push_back(label);
  }
  Factor z{{}, Union(Union(batch, x_free), y_free)};
  if (!x_sum.empty()) {
    z.x = Call(b, kOp_dot_general, {x.x, y.x}, {x_batch, y_batch, x_sum, y_sum});
    return z;
  }
  // Nothing is summed: element by element.
  const auto spread = [&](const Factor& f) -> Value {
    if (!f.x) return {};
    Dims dims;
    for (const int64_t label : z.labels) {
      const Factor& from = In(x.labels, label) ? x : y;
      dims.push_back(from.x.dims()[std::ranges::find(from.labels, label) - from.labels.begin()]);
    }
    Ints positions;
    for (const int64_t label : f.labels) positions.push_back(std::ranges::find(z.labels, label) - z.labels.begin());
    return BroadcastInAnyOrder(b, f.x, dims, positions);
  };
  if (!x.x || !y.x) return z;
  z.x = IsBool(x.x.dtype()) ? And(b, spread(x), spread(y)) : Mul(b, spread(x), spread(y));
  return z;
}

double Count(const Labels& labels, const Sizes& sizes) {
  double count = 1;
  for (const int64_t label : labels) count *= static_cast<double>(sizes.at(label));
  return count;
}
// The pair whose product makes what is kept smallest; of equal ones the one of least work. That is NumPy's and opt_einsum's greedy
// order.
std::pair<size_t, size_t> NextPair(const std::vector<Factor>& factors, const Labels& result, const Sizes& sizes) {
  std::pair<size_t, size_t> best = {0, 1};
  double least = 0, least_work = 0;
  bool any = false;
  for (size_t i = 0; i < factors.size(); ++i) {
    for (size_t j = i + 1; j < factors.size(); ++j) {
      const Labels all = Union(factors[i].labels, factors[j].labels);
      Labels kept;
      for (const int64_t label : all) {
        bool needed = In(result, label);
        for (size_t k = 0; k < factors.size() && !needed; ++k)
          needed = k != i && k != j && In(factors[k].labels, label);
        if (needed) kept.push_back(label);
      }
      const double work = Count(all, sizes);
      const double more = Count(kept, sizes) - Count(factors[i].labels, sizes) - Count(factors[j].labels, sizes);
      if (any && (more > least || (more == least && work >= least_work))) continue;
      best = {i, j};
      least = more;
      least_work = work;
      any = true;
    }
  }
  return best;
}

absl::Status ExpandEinsum(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  std::vector<const Type*> types;
  for (const Value& x : call.operands) types.push_back(&x.type());
  WEFT_ASSIGN_OR_RETURN(const Equation e, ReadEquation(Attr<kEquationAttrs, "equation">(call.attrs), types));
  WEFT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(e, types));
  std::vector<Factor> factors;
  for (size_t i = 0; i < types.size(); ++i) {
    factors.push_back({call.operands[i], e.operands[i]});
    TakeDiagonals(b, factors.back());
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    Tidy(b, factors[i], sizes, [&](int64_t label) {
      bool needed = In(e.result, label);
      for (size_t k = 0; k < factors.size() && !needed; ++k) needed = k != i && In(factors[k].labels, label);
      return needed;
    });
  }
  while (factors.size() > 1 && b.ok()) {
    const auto [i, j] = NextPair(factors, e.result, sizes);
    const Factor y = factors[j], x = factors[i];
    factors.erase(factors.begin() + static_cast<ptrdiff_t>(j));
    factors.erase(factors.begin() + static_cast<ptrdiff_t>(i));
    factors.push_back(Product(b, x, y, [&](int64_t label) {
      return In(e.result, label) ||
             std::ranges::any_of(factors, [&](const Factor& other) { return In(other.labels, label); });
    }));
  }
  if (!b.ok()) return b.status();
  Factor& all = factors[0];
  Tidy(b, all, sizes, [&](int64_t label) { return In(e.result, label); });
  Ints order;
  for (const int64_t label : e.result) order.push_back(std::ranges::find(all.labels, label) - all.labels.begin());
  results[0] = all.x ? Transpose(b, all.x, order) : all.x;
  return b.status();
}

// --- tensordot

struct Contracted {
  Ints x, y;
};
absl::StatusOr<Contracted> ContractedOf(const Attrs& attrs, size_t x_rank, size_t y_rank) {
  const auto each = [](std::string_view name, const Ints& given, size_t rank) -> absl::StatusOr<Ints> {
    WEFT_RETURN_IF_ERROR(NormalizeAxes(name, given, rank).status());  // none twice
    Ints dims;
    for (const int64_t d : given) dims.push_back(d < 0 ? d + static_cast<int64_t>(rank) : d);
    return dims;
  };
  Contracted c;
  WEFT_ASSIGN_OR_RETURN(c.x, each("x_dims", Attr<kTensordotAttrs, "x_dims">(attrs), x_rank));
  WEFT_ASSIGN_OR_RETURN(c.y, each("y_dims", Attr<kTensordotAttrs, "y_dims">(attrs), y_rank));
  return c;
}
absl::Status InferTensordot(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &y = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Contracted c, ContractedOf(call.attrs, x.rank(), y.rank()));
  if (c.x.size() != c.y.size()) {
    return UserError("x_dims has ", c.x.size(), " entries and y_dims ", c.y.size(), "; they pair up one to one");
  }
  for (size_t i = 0; i < c.x.size(); ++i) {
    if (x.dims[c.x[i]] == y.dims[c.y[i]]) continue;
    return UserError("dimensions ", c.x[i], " of x and ", c.y[i], " of y have sizes ", x.dims[c.x[i]], " and ",
                     y.dims[c.y[i]], "; they must be equal");
  }
  Dims dims;
  for (const auto& [type, without] : {std::pair(&x, &c.x), std::pair(&y, &c.y)}) {
    for (int64_t d = 0; d < static_cast<int64_t>(type->rank()); ++d) {
      if (!In(*without, d)) dims.push_back(type->dims[d]);
    }
  }
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}
absl::Status ExpandTensordot(const ExpandCall& call, std::span<Value> results) {
  const Value &x = call.operands[0], &y = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Contracted c, ContractedOf(call.attrs, x.dims().size(), y.dims().size()));
  results[0] = Call(call.b, kOp_dot_general, {x, y}, {Ints(), Ints(), c.x, c.y});
  return absl::OkStatus();
}

constexpr Sample kEinsums[] = {{"T[2,3] T[3,4] equation=ij,jk->ik"},
                               {"T[2,3,4] T[2,4,5] equation=...ij,...jk"},
                               {"T[3,3] equation=ii"},
                               {"T[2,3,3] equation=...ii->i..."},
                               {"T[2,3] T[3,4] T[4,2] equation=ij,jk,kl"},
                               {"T[2,1,3] T[4,3] equation=bij,ij->bi"},
                               {"T[2,3] T[] equation=ab,->ba"},
                               {"T[0,3] T[3,2] equation=ij,jk->k"}};
constexpr Sample kTensordots[] = {{"T[2,3,4] T[4,3,5] x_dims=[1,-1] y_dims=[1,0]"}, {"T[2] T[3] x_dims=[] y_dims=[]"}};
constexpr Tolerance kTolerance = {.f32 = 2e-5, .f64 = 1e-13, .bf16 = 3e-2, .f16 = 4e-3, .absolute = 2e-5};

}  // namespace

constinit const OpDef kOp_einsum = Formula({
    .name = "weft.einsum",
    .c_name = "einsum",
    .doc =
        "The sum of products that an equation of letters says, as NumPy's einsum: a letter in two operands pairs their "
        "dimensions, one that the result lacks is summed over, one that an operand has twice takes its diagonal, and '...' "
        "stands for dimensions without letters, which broadcast. Without -> the result has the letters that stand once, in "
        "alphabetical order. Sizes of 1 go along with any other. More than two operands are multiplied by pairs, those first "
        "that leave the least. Of bools sums are or and products and.",
    .example = "y = wf_einsum(s, WF_TENSORS(x, w), \"bij,jk->bik\", WEFT_STRLEN);",
    .operands = kFactors,
    .attrs = kEquationAttrs,
    .infer = InferEinsum,
    .expand = ExpandEinsum,
    .samples = kEinsums,
    .tolerance = kTolerance,
});
constinit const OpDef kOp_tensordot = Formula({
    .name = "weft.tensordot",
    .c_name = "tensordot",
    .doc = "The product of two tensors, summed over pairs of dimensions: those of x that are left, then those of y.",
    .example = "z = wf_tensordot(s, x, y, WF_INTS(1), WF_INTS(0));",
    .operands = kPair,
    .attrs = kTensordotAttrs,
    .infer = InferTensordot,
    .expand = ExpandTensordot,
    .samples = kTensordots,
    .tolerance = kTolerance,
    .rounds_once = true,
});

}  // namespace weft::ops
