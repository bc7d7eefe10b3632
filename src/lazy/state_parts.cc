// See state_parts.h.
#include "src/lazy/state_parts.h"

#include <map>
#include <utility>

#include "src/ops/build.h"
#include "src/ops/registry.h"

namespace weft::lazy {

using ir::Value;

std::vector<std::vector<size_t>> Buckets(std::span<const ir::Type* const> types, const BucketSizes& sizes) {
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
    bool first = true;
  };
  std::vector<std::vector<size_t>> closed;
  std::map<DType, Open> open;
  for (size_t i = types.size(); i-- > 0;) {
    const int64_t bytes = types[i]->count() * BytesOf(types[i]->dtype);
    if (bytes == 0) continue;
    Open& bucket = open[types[i]->dtype];
    if (!bucket.members.empty() && bucket.bytes + bytes > (bucket.first ? sizes.first : sizes.rest)) {
      closed.push_back(std::move(bucket.members));
      bucket = {.members = {}, .bytes = 0, .first = false};
    }
    bucket.members.push_back(i);
    bucket.bytes += bytes;
  }
  for (auto& [dtype, bucket] : open) closed.push_back(std::move(bucket.members));
  return closed;
}

int64_t StateParts::PartOf(const Dims& dims) const { return (CountOf(dims) + count_ - 1) / count_; }

PartsOfStep::PartsOfStep(ir::Builder& b, const StateParts& parts, std::span<const Value> parameters, const Value& rank)
    : b_(b), parts_(parts), parameters_(parameters.begin(), parameters.end()), rank_(rank) {
  std::vector<const ir::Type*> types;
  for (const Value& parameter : parameters_) types.push_back(&parameter.type());
  buckets_ = Buckets(types, {});
}

Value PartsOfStep::Padded(const Value& x) const {
  const int64_t elements = x.type().count(), all = parts_.PartOf(x.dims()) * parts_.count();
  Value flat = ops::Reshape(b_, x, {elements});
  return elements == all ? flat : ops::Pad(b_, std::move(flat), 0, {0}, {all - elements}, {0});
}

std::vector<Value> PartsOfStep::Own() const {
  const Value rank = ops::Convert(b_, rank_, DType::kI64);
  std::vector<Value> own;
  for (const Value& parameter : parameters_) {
    const int64_t part = parts_.PartOf(parameter.dims());
    own.push_back(ops::Call(b_, ops::kOp_dynamic_slice,
                            {Padded(parameter), ops::Mul(b_, rank, static_cast<double>(part))}, {ir::Ints{part}}));
  }
  return own;
}

std::vector<Value> PartsOfStep::MeansOf(std::span<const Value> gradients) const {
  std::vector<Value> means;
  for (const Value& gradient : gradients) means.push_back(ops::Reshape(b_, gradient, {gradient.type().count()}));
  for (const std::vector<size_t>& bucket : buckets_) {
    ir::Values rows;
    for (const size_t i : bucket) {
      rows.push_back(ops::Reshape(b_, Padded(gradients[i]), {parts_.count(), parts_.PartOf(gradients[i].dims())}));
    }
    Value all = rows.size() == 1 ? rows[0] : ops::Call(b_, ops::kOp_concatenate, std::move(rows), {int64_t{1}});
    if (!b_.ok()) break;
    const Value mean = ops::Mul(b_, parts_.Scatter(b_, std::move(all)), 1.0 / static_cast<double>(parts_.count()));
    int64_t at = 0;
    for (const size_t i : bucket) {
      const int64_t part = parts_.PartOf(gradients[i].dims());
      means[i] = ops::Slice(b_, mean, {at}, {at + part}, {1});
      at += part;
    }
  }
  return means;
}

std::vector<Value> PartsOfStep::Whole(std::span<const Value> parts) const {
  std::vector<Value> whole;
  for (const Value& parameter : parameters_) whole.push_back(parameter);
  for (const std::vector<size_t>& bucket : buckets_) {
    ir::Values row;
    for (const size_t i : bucket) row.push_back(parts[i]);
    Value own = row.size() == 1 ? row[0] : ops::Call(b_, ops::kOp_concatenate, std::move(row), {int64_t{0}});
    if (!b_.ok()) break;
    const Value all = parts_.Gather(b_, std::move(own));
    int64_t at = 0;
    for (const size_t i : bucket) {
      const Dims& dims = parameters_[i].dims();
      const int64_t part = parts_.PartOf(dims), elements = parameters_[i].type().count();
      Value flat = ops::Slice(b_, all, {0, at}, {parts_.count(), at + part}, {1, 1});
      flat = ops::Reshape(b_, std::move(flat), {parts_.count() * part});
      if (elements != parts_.count() * part) flat = ops::Slice(b_, std::move(flat), {0}, {elements}, {1});
      whole[i] = ops::Reshape(b_, std::move(flat), dims);
      at += part;
    }
  }
  return whole;
}

}  // namespace weft::lazy
