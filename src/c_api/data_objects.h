// The objects behind weft_dataset and weft_sampler: of no context, immutable, and so of use after fork, too.
#pragma once

#include "src/c_api/guard.h"
#include "src/data/dataset.h"
#include "src/data/sampler.h"

namespace weft::c_api {

template <>
struct HandleTraits<weft_dataset> {
  using Object = data::Dataset;
  static constexpr HandleType kType = HandleType::kDataset;
};
template <>
struct HandleTraits<weft_sampler> {
  using Object = data::Sampler;
  static constexpr HandleType kType = HandleType::kSampler;
};

}  // namespace weft::c_api
