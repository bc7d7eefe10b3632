/* perf and GDB are told of generated code: names and addresses of programs compiled and from the cache, in a file that is this
 * process's alone. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "folder.h"
#include "warnings.h"

static weft_context* context_of(const char* option, const char* value, const char* cache) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, cache != NULL ? "write" : "off", WEFT_STRLEN},
                                   {option, WEFT_STRLEN, value, WEFT_STRLEN},
                                   {"cache_dir", WEFT_STRLEN, cache != NULL ? cache : "", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 3;
  options.log = on_log;
  options.min_log_level = WEFT_LOG_WARNING;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* A loop by itself, and a product; the sum of both results. */
static double compute(weft_context* ctx) {
  wf_scope* s = wf_begin(ctx);
  weft_tensor *x = wf_normal(s, WF_INTS(64, 64)), *y;
  double sum = 0;
  wf_try(s, weft_eval(ctx, &x, 1, NULL));
  y = wf_matmul(s, x, x);
  wf_try(s, weft_eval(ctx, &y, 1, NULL));
  y = wf_relu(s, wf_tanh(s, wf_exp(s, wf_mul(s, y, y))));
  wf_try(s, weft_eval(ctx, &y, 1, NULL));
  sum = wf_item(s, wf_sum(s, y));
  OK(wf_end(s));
  return sum;
}

static char* content(const char* path, size_t* size) {
  FILE* const file = fopen(path, "rb");
  char* data;
  long bytes;
  *size = 0;
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  bytes = ftell(file);
  rewind(file);
  data = malloc((size_t)bytes + 1);
  *size = fread(data, 1, (size_t)bytes, file);
  data[*size] = 0;
  fclose(file);
  return data;
}

static int count_of(const char* text, const char* word) {
  int n = 0;
  for (text = text != NULL ? strstr(text, word) : NULL; text != NULL; text = strstr(text + 1, word)) ++n;
  return n;
}

/* Regions of memory that hold code and are of no file: generated code is in them, with the kernel's own. */
struct region {
  uint64_t begin, end;
  int named;
};
static size_t code_regions(struct region* regions, size_t most) {
  char line[1000], rights[8], path[800];
  unsigned long long begin, end;
  size_t n = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL && n < most) {
    path[0] = 0;
    if (sscanf(line, "%llx-%llx %7s %*s %*s %*s %799s", &begin, &end, rights, path) < 3) continue;
    if (rights[2] != 'x' || path[0] != 0) continue;
    regions[n++] = (struct region){begin, end, 0};
  }
  if (maps != NULL) fclose(maps);
  return n;
}

static void check_map(const char* path, int least) {
  enum { kMost = 1000 };
  static struct region regions[kMost];
  const size_t count = code_regions(regions, kMost);
  size_t size, named = 0;
  int lines = 0;
  char *const text = content(path, &size), *line, *rest = text;
  CHECK(text != NULL);
  while (rest != NULL && (line = strsep(&rest, "\n")) != NULL && *line != 0) {
    unsigned long long address, bytes;
    char name[300];
    CHECK_EQUAL(sscanf(line, "%llx %llx %299s", &address, &bytes, name), 3);
    CHECK(strncmp(name, "weft.", 5) == 0);
    CHECK(strstr(name, "weft.weft") == NULL);
    size_t i = 0;
    while (i < count && !(regions[i].begin <= address && address + bytes <= regions[i].end)) ++i;
    CHECK(i < count);
    if (i < count) regions[i].named = 1;
    ++lines;
  }
  for (size_t i = 0; i < count; ++i) named += (size_t)regions[i].named;
  CHECK(lines >= least);
  CHECK_EQUAL(named, count); /* no generated code without a name */
  free(text);
}

static void map_of(const char* cache) {
  char path[400];
  size_t size;
  struct stat about;
  weft_context* ctx = context_of("perf_map", "map", cache);
  const double first = compute(ctx);
  char* text;
  int loops, tiles;
  CHECK(metric(ctx, "programs_compiled") > 0);
  snprintf(path, sizeof path, "%s/perf-%d.map", g_dir, (int)getpid());
  CHECK_EQUAL(stat(path, &about), 0);
  CHECK_EQUAL(about.st_mode & 0777, 0600);
  text = content(path, &size);
  loops = count_of(text, "weft.multiply_exponential_tanh_relu.f32.") + count_of(text, "weft.mul_exp_tanh_relu.f32.");
  tiles = count_of(text, " weft.tile.f32.");
  if (loops < 1 || tiles < 1) printf("%s", text);
  CHECK(loops >= 1);
  CHECK(tiles >= 1);
  free(text);
  check_map(path, 3);
  weft_context_release(ctx);

  ctx = context_of("perf_map", "map", cache); /* the same from the cache */
  CHECK(compute(ctx) == first);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  text = content(path, &size);
  CHECK_EQUAL(count_of(text, "weft.multiply_exponential_tanh_relu.f32.") + count_of(text, "weft.mul_exp_tanh_relu.f32."), 2 * loops);
  CHECK_EQUAL(count_of(text, " weft.tile.f32."), 2 * tiles);
  free(text);
  weft_context_release(ctx);

  ctx = context_of("perf_map", "off", cache); /* nothing without the option */
  text = content(path, &size);
  CHECK(compute(ctx) == first);
  const size_t before = size;
  free(text);
  text = content(path, &size);
  CHECK_EQUAL(size, before);
  free(text);
  weft_context_release(ctx);
}

/* The dump's records one after the other; each has the code that is in memory. */
static void jitdump(void) {
  weft_context* const ctx = context_of("perf_map", "jitdump", NULL);
  char path[400];
  size_t size, at = 40;
  uint32_t word, records = 0;
  compute(ctx);
  snprintf(path, sizeof path, "%s/jit-%d.dump", g_dir, (int)getpid());
  char* const data = content(path, &size);
  CHECK(data != NULL && size > 40);
  if (data == NULL) return;
  memcpy(&word, data, 4);
  CHECK_EQUAL(word, 0x4A695444);
  memcpy(&word, data + 20, 4);
  CHECK_EQUAL(word, getpid());
  while (at + 56 < size) {
    uint32_t id, bytes;
    uint64_t address, code;
    memcpy(&id, data + at, 4);
    memcpy(&bytes, data + at + 4, 4);
    memcpy(&address, data + at + 24, 8);
    memcpy(&code, data + at + 40, 8);
    CHECK_EQUAL(id, 0);
    const char* const name = data + at + 56;
    CHECK(strncmp(name, "weft.", 5) == 0);
    CHECK_EQUAL(bytes, 56 + strlen(name) + 1 + code);
    if (bytes < 56 || at + bytes > size) break;
    CHECK(memcmp(name + strlen(name) + 1, (const void*)(uintptr_t)address, code) == 0);
    at += bytes;
    ++records;
  }
  CHECK_EQUAL(at, size);
  CHECK(records >= 3);
  free(data);
  weft_context_release(ctx);
}

/* Forks. 1 in the child; 0 in this process, once the child has ended and found nothing wrong. */
static int in_child(void) {
  int status = 0;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) return 1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  CHECK_EQUAL(WEXITSTATUS(status), 0);
  return 0;
}

/* In a child, before it has made a context: something else has the name already. What it leads to stays as it is. */
static void taken(int link) {
  char path[400], victim[400];
  if (!in_child()) return;
  snprintf(path, sizeof path, "%s/perf-%d.map", g_dir, (int)getpid());
  snprintf(victim, sizeof victim, "%s/victim-%d", g_dir, (int)getpid());
  FILE* const file = fopen(link ? victim : path, "w");
  fputs("as it was", file);
  fclose(file);
  if (link) CHECK_EQUAL(symlink(victim, path), 0);
  weft_context* const ctx = context_of("perf_map", "map", NULL);
  CHECK(compute(ctx) != 0);
  weft_context_release(ctx);
  size_t size;
  char* const text = content(link ? victim : path, &size);
  CHECK_TEXT(text, "as it was");
  CHECK_EQUAL(g_warnings, 1);
  CHECK(strstr(g_warning, "cannot be made: File exists; perf will not know") != NULL);
  free(text);
  exit(g_failures == 0 ? 0 : 1);
}

/* A file of an earlier process that had this one's number makes room. */
static void left_over(void) {
  char path[400];
  if (!in_child()) return;
  snprintf(path, sizeof path, "%s/perf-%d.map", g_dir, (int)getpid());
  FILE* const file = fopen(path, "w");
  fputs("of another process", file);
  fclose(file);
  const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
  CHECK_EQUAL(utimensat(AT_FDCWD, path, times, 0), 0);
  weft_context* const ctx = context_of("perf_map", "map", NULL);
  compute(ctx);
  size_t size;
  char* const text = content(path, &size);
  CHECK(text != NULL && strstr(text, "another") == NULL && strstr(text, " weft.") != NULL);
  CHECK_EQUAL(g_warnings, 0);
  free(text);
  weft_context_release(ctx);
  exit(g_failures == 0 ? 0 : 1);
}

/* GDB stops in a loop by its name and walks from there to main. */
static void in_gdb(const char* self) {
  char path[400], command[2000], name[300] = "", shown[300], line[1000];
  size_t size;
  int in_loop = 0, in_main = 0;
  if (system("gdb --version > /dev/null 2>&1") != 0) {
    printf("gdb is not installed: its part is left out\n");
    return;
  }
  snprintf(path, sizeof path, "%s/perf-%d.map", g_dir, (int)getpid());
  char *const text = content(path, &size), *const at = text != NULL ? strstr(text, "tanh_relu.f32.") : NULL;
  CHECK(at != NULL);
  if (at == NULL) return;
  char* begin = at;
  while (begin > text && begin[-1] != ' ') --begin;
  sscanf(begin, "%299s", name);
  free(text);
  snprintf(command, sizeof command,
           "WEFT_THREADS=1 gdb -batch -nx -ex 'set breakpoint pending on' -ex 'set debuginfod enabled off' -ex \"break '%s'\" "
           "-ex run -ex 'stepi 12' -ex bt --args '%s' in_gdb 2>&1",
           name, self);
  snprintf(shown, sizeof shown, "%.*s", (int)(strrchr(name, '.') - name), name); /* GDB takes the digits for a clone's number */
  FILE* const out = popen(command, "r");
  while (out != NULL && fgets(line, sizeof line, out) != NULL) {
    if (strstr(line, "ptrace: Operation not permitted") != NULL) {
      printf("gdb may not trace here: its part is left out\n");
      in_loop = in_main = 1;
    }
    in_loop |= strstr(line, "#0 ") != NULL && strstr(line, shown) != NULL;
    in_main |= in_loop && (strstr(line, " in main ") != NULL || strstr(line, "clone") != NULL);
  }
  if (out != NULL) pclose(out);
  CHECK(in_loop);
  CHECK(in_main);
}

int main(int argc, char** argv) {
  char cache[400];
  if (argc > 1) { /* what in_gdb runs */
    weft_context* const ctx = context_of("gdb", "1", NULL);
    compute(ctx);
    weft_context_release(ctx);
    return 0;
  }
  make_folder();
  setenv("JITDUMPDIR", g_dir, 1);
  taken(0);
  taken(1);
  left_over();
  snprintf(cache, sizeof cache, "%s/cache", g_dir);
  map_of(cache);
  jitdump();
  in_gdb(argv[0]);
  CHECK_EQUAL(g_warnings, 0);
  remove_folder();
  return done("generated_code");
}
