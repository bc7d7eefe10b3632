// See job_parts.h.
#include "src/c_api/job_parts.h"

#include <utility>

#include "src/c_api/job_graph.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;

class JobParts final : public lazy::StateParts {
 public:
  JobParts(Ref<const JobObject> job, std::shared_ptr<ops::CustomFunctions> functions)
      : StateParts(job->job->place().rank, job->job->place().size),
        job_(std::move(job)),
        functions_(std::move(functions)) {}

  void StepBegins(lazy::Engine& engine) const override { job_->set_cancel(engine.services().StartToken(0)); }
  ir::Value Scatter(ir::Builder& b, ir::Value x) const override {
    return Run(b, CollectiveKind::kReduceScatter, std::move(x));
  }
  ir::Value Gather(ir::Builder& b, ir::Value x) const override {
    return Run(b, CollectiveKind::kAllGather, std::move(x));
  }
  absl::Status Carries(const ir::Type& type) const override { return CheckCarried(type.dtype, /*mean=*/true); }
  absl::StatusOr<Ref<lazy::Tensor>> Whole(lazy::Tensor* part, const Dims& dims) const override {
    const int64_t elements = CountOf(part->dims());
    WEFT_ASSIGN_OR_RETURN(HostTensor all, ValuesOver(*job_, *part, {elements * count()},
                                                     {.kind = CollectiveKind::kAllGather, .count = elements}));
    lazy::Engine& engine = part->engine();
    const auto bytes = static_cast<size_t>(CountOf(dims) * BytesOf(part->dtype()));
    return engine.FromHost(lazy::Where(part->device()), part->dtype(), dims, all.bytes().first(bytes),
                           CurrentLocation(engine));
  }

 private:
  ir::Value Run(ir::Builder& b, CollectiveKind kind, ir::Value x) const {
    if (!x) return {};
    const JobCall call = {.kind = kind, .dtype = x.dtype()};
    return JobGraph(b, *functions_, *job_).Call(call, std::move(x), /*derivatives=*/0);
  }

  const Ref<const JobObject> job_;
  const std::shared_ptr<ops::CustomFunctions> functions_;
};

}  // namespace

std::shared_ptr<const lazy::StateParts> PartsOver(Ref<const JobObject> job,
                                                  std::shared_ptr<ops::CustomFunctions> functions) {
  if (job->job->place().size == 1) return nullptr;
  return std::make_shared<JobParts>(std::move(job), std::move(functions));
}

}  // namespace weft::c_api
