// A job of two processes by libweft.hpp: its collectives, and an optimizer over them whose state is whole or in parts. The judge is
// Adam in doubles, written out here.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "check.hpp"

namespace {

constexpr int kSteps = 4;
constexpr double kRate = 0.1;

// The gradient of process r at weight w is w * (r + 1).
std::vector<double> adam_of(std::vector<double> w, double factor) {
  std::vector<double> m(w.size()), v(w.size());
  for (int t = 1; t <= kSteps; ++t) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = w[i] * factor;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      w[i] -= kRate * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
  }
  return w;
}

void train(const weft::context& ctx, const weft::job& job, bool shards) {
  const std::vector<double> begin = {1, -2, 3, 0.5, -0.25};
  const weft::tensor w(ctx, begin);
  const weft::optimizer adam = weft::adam({w}, {.job = job, .shard_state = shards});
  for (int t = 0; t < kSteps; ++t) {
    adam.step({w * (job.rank() + 1)}, kRate);
    ctx.sync();
  }
  const std::vector<double> have = w.to_vector<double>(), want = adam_of(begin, 1.5);
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(have[i] - want[i]) < 1e-12);
  const weft::tensor part = adam.state()["slots.m.0"].as<weft::tensor>();
  CHECK(part.size() == (shards ? 3 : 5));
  const weft::tree whole = adam.whole_state();
  CHECK(whole["slots.m.0"].as<weft::tensor>().size() == 5);
  const weft::optimizer other = weft::adam({w}), sgd = weft::sgd({w}, {.momentum = 0.5, .job = job, .shard_state = shards});
  other.load(whole);
  weft::tree tree;
  tree.add("adam", adam.state()).add("w", w);
  const std::string path = "jobs-" + std::to_string(shards) + ".weft";
  job.save(ctx, path, tree, {.step = 3});
  const weft::tree back = weft::tree::load(ctx, path);
  CHECK(back["w"].as<weft::tensor>().to_vector<double>() == have);
  other.load(back["adam"]);
  adam.load_from(weft::checkpoint_reader::open(ctx, path), "adam");
  job.barrier();
  sgd.step({w}, 0.0);
  double squares = 0;
  for (const double value : have) squares += 2.25 * value * value;
  const double rates[] = {0.0};
  CHECK(std::abs(sgd.step_clipped({w * (job.rank() + 1)}, rates, 1.0).to_vector<double>()[0] - std::sqrt(squares)) < 1e-9);
  if (!shards) return;
  const auto refused = other.try_load(adam.state());
  CHECK(!refused && std::string(refused.error().what()).find("this optimizer keeps all of it") != std::string::npos);
}

int member(int rank, const char* id) {
  const weft::context ctx;
  const weft::job job = weft::job::join({.rank = rank, .size = 2, .id = id, .timeout_ms = 60000, .ctx = &ctx});
  CHECK(job.rank() == rank && job.size() == 2);
  const weft::tensor x(ctx, {static_cast<float>(rank), 1.f});
  CHECK(holds<float>(job.all_reduce(x), {1, 2}) && holds<float>(job.all_reduce(x, weft::job_reduction::max), {1, 1}));
  CHECK(holds<float>(job.all_gather(x), {0, 1, 1, 1}) && holds<float>(job.broadcast(x, 1), {1, 1}));
  CHECK(job.reduce_scatter(x).to_vector<float>() == std::vector<float>(1, rank == 0 ? 1.f : 2.f));
  CHECK(job.all_to_all(x).to_vector<float>() == (rank == 0 ? std::vector<float>{0, 1} : std::vector<float>{1, 1}));
  CHECK(holds<float>(job.reduce({x})[0], {0.5, 1}));
  using kind = weft::job_collective;
  CHECK(holds<float>(job.record(kind::all_gather, x), {0, 1, 1, 1}) && holds<float>(job.record(kind::broadcast, x, {}, 1), {1, 1}));
  CHECK(holds<float>(job.record(kind::all_reduce, x, weft::job_reduction::mean), {0.5, 1}));
  CHECK(!job.preempted());
  if (rank == 1) job.preempt();
  CHECK(job.preempted());
  job.barrier();
  train(ctx, job, false);
  train(ctx, job, true);
  CHECK(job.info().collectives > 8);
  job.leave();
  CHECK(!job.try_barrier());
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return member(std::atoi(argv[1]), argv[2]);
  CHECK(!weft::job::try_join({.rank = 2, .size = 2}));
  const std::string id = "cpp-" + std::to_string(getpid());
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    execl(argv[0], argv[0], rank == 0 ? "0" : "1", id.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  for (const pid_t child : children) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  return report();
}
