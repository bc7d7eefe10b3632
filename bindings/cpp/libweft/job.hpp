/* Jobs of libweft.hpp: several processes that run one program together. */
#ifndef LIBWEFT_JOB_HPP
#define LIBWEFT_JOB_HPP

#include <span>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "results.hpp"
#include "tensor.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Who a process is in its job; what is not given is found, as docs/distributed.md says. */
struct job_options {
  std::int32_t rank = 0, size = 0;             /* size 0: they are found */
  std::int32_t local_rank = 0, local_size = 0; /* local_size 0: all processes are on this host */
  std::string id = {}, token = {}, coordinator = {};
  std::int64_t timeout_ms = 0; /* 300,000 */
  const weft::context* ctx = nullptr; /* its cancel ends joining and the job's other waits */
};

/* What job::record records. */
enum class job_collective : std::int32_t {
  all_reduce = WEFT_JOB_ALL_REDUCE,
  all_gather = WEFT_JOB_ALL_GATHER,
  reduce_scatter = WEFT_JOB_REDUCE_SCATTER,
  all_to_all = WEFT_JOB_ALL_TO_ALL,
  broadcast = WEFT_JOB_BROADCAST
};

enum class job_reduction : std::int32_t {
  sum = WEFT_JOB_SUM,
  product = WEFT_JOB_PRODUCT,
  min = WEFT_JOB_MIN,
  max = WEFT_JOB_MAX,
  logical_and = WEFT_JOB_AND,
  logical_or = WEFT_JOB_OR,
  mean = WEFT_JOB_MEAN /* of job::reduce and job::record */
};

/* A membership: weft::job job; … optimizer = weft::adamw(parameters, {.job = job, .shard_state = true}). All processes make the
 * same calls in the same order, and an error of one is an error of all. Any thread. Since 1.2. */
class job : public detail::handle<weft_job, weft_job_retain, weft_job_release> {
 public:
  /* In no job. */
  job() noexcept = default;
  [[nodiscard]] static result<job> try_join(const job_options& options = {}) {
    weft_job_options o{};
    o.struct_size = sizeof o;
    o.rank = options.rank;
    o.size = options.size;
    o.local_rank = options.local_rank;
    o.local_size = options.local_size;
    o.timeout_ms = options.timeout_ms;
    if (options.ctx != nullptr) o.context = options.ctx->get();
    const auto text = [](const std::string& from, const char*& data, std::uint64_t& length) {
      if (from.empty()) return;
      data = from.data();
      length = from.size();
    };
    text(options.id, o.id, o.id_length);
    text(options.token, o.token, o.token_length);
    text(options.coordinator, o.coordinator, o.coordinator_length);
    weft_job* out = nullptr;
    if (weft_error* raw = weft_job_join(&o, &out)) return result<job>(raw);
    return adopt(out);
  }
  /* Joins, and waits until all processes have come. Errors: deadline_exceeded, … Since 1.2. */
  [[nodiscard]] static job join(const job_options& options = {}) { return detail::must(try_join(options)); }
  /* Takes over a C job with its reference. Since 1.2. */
  [[nodiscard]] static job adopt(weft_job* raw) noexcept { return job(raw); }

  [[nodiscard]] result<weft_job_info> try_info() const {
    weft_job_info out{};
    out.struct_size = sizeof out;
    if (weft_error* raw = weft_job_read_info(get(), &out)) return result<weft_job_info>(raw);
    return out;
  }
  /* Rank, size and others, as C has them; the text is borrowed for the job's life. Since 1.2. */
  [[nodiscard]] weft_job_info info() const { return detail::must(try_info()); }
  [[nodiscard]] std::int32_t rank() const { return info().rank; }
  [[nodiscard]] std::int32_t size() const { return info().size; }

  [[nodiscard]] result<void> try_barrier() const { return result<void>(weft_job_barrier(get())); }
  /* Waits until all processes have come here. Since 1.2. */
  void barrier() const { detail::must(try_barrier()); }
  [[nodiscard]] result<void> try_save(const context& ctx, std::string_view path, const tree& what,
                                      const save_options& options = {}, bool master_only = false) const {
    return result<void>(tree::with_options(options, [&](const weft_checkpoint_options& file) {
      weft_job_save_options o{};
      o.struct_size = sizeof o;
      o.file = &file;
      o.master_only = master_only ? 1 : 0;
      return weft_checkpoint_save_job(ctx.get(), get(), path.data(), path.size(), what.get(), &o);
    }));
  }
  /* A checkpoint that all processes write together, each a shard beside the path; tree::load reads it on any number of
   * processes. With master_only rank 0 writes one file. Since 1.2. */
  void save(const context& ctx, std::string_view path, const tree& what, const save_options& options = {},
            bool master_only = false) const {
    detail::must(try_save(ctx, path, what, options, master_only));
  }
  [[nodiscard]] result<void> try_leave() const { return result<void>(weft_job_leave(get())); }
  /* Waits until all have come here, and leaves. Read what was recorded before. Since 1.2. */
  void leave() const { detail::must(try_leave()); }

  [[nodiscard]] result<tensor> try_all_reduce(const tensor& x, job_reduction reduction = job_reduction::sum) const {
    return through(x, [&](weft_tensor** out) {
      return weft_job_all_reduce(get(), x.get(), static_cast<weft_job_reduction>(reduction), out);
    });
  }
  /* The reduction over all processes; by values, without a gradient, as the three that follow. Since 1.2. */
  [[nodiscard]] tensor all_reduce(const tensor& x, job_reduction reduction = job_reduction::sum) const {
    return detail::must(try_all_reduce(x, reduction));
  }
  [[nodiscard]] result<tensor> try_all_gather(const tensor& x) const {
    return through(x, [&](weft_tensor** out) { return weft_job_all_gather(get(), x.get(), out); });
  }
  /* The values of all processes, one behind the other along the first dimension. Since 1.2. */
  [[nodiscard]] tensor all_gather(const tensor& x) const { return detail::must(try_all_gather(x)); }
  [[nodiscard]] result<tensor> try_reduce_scatter(const tensor& x,
                                                  job_reduction reduction = job_reduction::sum) const {
    return through(x, [&](weft_tensor** out) {
      return weft_job_reduce_scatter(get(), x.get(), static_cast<weft_job_reduction>(reduction), out);
    });
  }
  /* This process's part of the reduction along the first dimension. Since 1.2. */
  [[nodiscard]] tensor reduce_scatter(const tensor& x, job_reduction reduction = job_reduction::sum) const {
    return detail::must(try_reduce_scatter(x, reduction));
  }
  [[nodiscard]] result<tensor> try_all_to_all(const tensor& x) const {
    return through(x, [&](weft_tensor** out) { return weft_job_all_to_all(get(), x.get(), out); });
  }
  /* Part k is this process's part of the value of process k. Since 1.2. */
  [[nodiscard]] tensor all_to_all(const tensor& x) const { return detail::must(try_all_to_all(x)); }
  [[nodiscard]] result<tensor> try_broadcast(const tensor& x, std::int32_t root = 0) const {
    return through(x, [&](weft_tensor** out) { return weft_job_broadcast(get(), x.get(), root, out); });
  }
  /* The value of one process. Since 1.2. */
  [[nodiscard]] tensor broadcast(const tensor& x, std::int32_t root = 0) const {
    return detail::must(try_broadcast(x, root));
  }
  [[nodiscard]] result<tensors> try_reduce(const tensor_refs& all,
                                           job_reduction reduction = job_reduction::mean) const {
    detail::elements<weft_tensor*> out(all.size());
    weft_error* raw = weft_job_reduce(all.context_handle(), get(), all.data(), all.size(),
                                      static_cast<weft_job_reduction>(reduction), nullptr, out.data());
    return detail::made_tensors(raw, all.context_handle(), out.data(), out.size());
  }
  /* The mean or the sum of each tensor over all processes, recorded as a part of the program. Since 1.2. */
  [[nodiscard]] tensors reduce(const tensor_refs& all, job_reduction reduction = job_reduction::mean) const {
    return detail::must(try_reduce(all, reduction));
  }
  [[nodiscard]] result<tensor> try_record(job_collective collective, const tensor& x,
                                          job_reduction reduction = job_reduction::sum, std::int32_t root = 0) const {
    return through(x, [&](weft_tensor** out) {
      return weft_job_record(x.context_handle(), get(), static_cast<weft_job_collective>(collective), x.get(),
                             static_cast<weft_job_reduction>(reduction), root, out);
    });
  }
  /* A collective as a part of the program, with its gradient. Since 1.2. */
  [[nodiscard]] tensor record(job_collective collective, const tensor& x, job_reduction reduction = job_reduction::sum,
                              std::int32_t root = 0) const {
    return detail::must(try_record(collective, x, reduction, root));
  }
  /* Says that this process is to end soon; may be called in a handler of SIGTERM. Since 1.2. */
  void preempt() const noexcept { weft_job_preempt(get()); }
  [[nodiscard]] result<bool> try_preempted() const {
    std::int32_t out = 0;
    if (weft_error* raw = weft_job_preempted(get(), &out)) return result<bool>(raw);
    return out != 0;
  }
  /* True if a process of the job is to end soon: one answer in all of them, which ask at the same steps. Since 1.2. */
  [[nodiscard]] bool preempted() const { return detail::must(try_preempted()); }

 private:
  explicit job(weft_job* raw) noexcept : handle(raw) {}
  template <class Call>
  [[nodiscard]] result<tensor> through(const tensor& x, Call call) const {
    weft_tensor* out = nullptr;
    weft_error* const raw = call(&out);
    return detail::made(raw, x.context_handle(), out);
  }
};

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_JOB_HPP
