/* A plugin that hands everything on to another one and writes down what that is given to compile: the texts that Weft sends.
 *
 *   WEFT_LISTEN_TO   the other plugin's path
 *   WEFT_LISTEN_IN   a folder, which gets 0.mlir, 1.mlir, …; unset: nothing is written down
 *   WEFT_LISTEN_DIE  the process ends at a text that has this in it
 *   WEFT_LISTEN_ALONE  set: programs for any device are compiled for the first one, as by a plugin that does not read that option
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  size_t struct_size;
  void* extension_start;
} head;
typedef struct {
  head head;
  const char* code;
  size_t code_size;
} program;
/* Of PJRT_Client_Compile and of PJRT_Compile alike. */
typedef struct {
  head head;
  void* client_or_topology;
  const program* program;
  const char* options;
  size_t options_size;
} compile_args;
typedef void* (*function)(void*);
enum { kFirst = 5 * sizeof(void*), kClientCompile = 20, kCompile = 89 };

static function* theirs;

static void write_down(const compile_args* args) {
  static int count;
  const char* const folder = getenv("WEFT_LISTEN_IN");
  const char* const last = getenv("WEFT_LISTEN_DIE");
  char path[4096];
  FILE* out;
  if (last != NULL && memmem(args->program->code, args->program->code_size, last, strlen(last)) != NULL) abort();
  if (folder == NULL) return;
  snprintf(path, sizeof path, "%s/%d.mlir", folder, __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
  out = fopen(path, "wb");
  if (out == NULL || fwrite(args->program->code, 1, args->program->code_size, out) != args->program->code_size || fclose(out) != 0) {
    fprintf(stderr, "listener: cannot write %s\n", path);
    exit(1);
  }
}
/* CompileOptionsProto.compile_portable_executable = 1, which Weft writes last. */
static void leave_out_portable(compile_args* args) {
  static const char portable[] = {0x20, 0x01};
  if (getenv("WEFT_LISTEN_ALONE") == NULL || args->options_size < sizeof portable) return;
  if (memcmp(args->options + args->options_size - sizeof portable, portable, sizeof portable) == 0) args->options_size -= sizeof portable;
}
static void* client_compile(void* args) {
  write_down(args);
  leave_out_portable(args);
  return theirs[kClientCompile](args);
}
static void* compile(void* args) {
  write_down(args);
  return theirs[kCompile](args);
}

const void* GetPjrtApi(void) {
  const char* const path = getenv("WEFT_LISTEN_TO");
  void* const library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  char* table;
  const head* real;
  function* own;
  const void* (*get)(void);
  if (library == NULL) {
    fprintf(stderr, "listener: %s\n", path == NULL ? "WEFT_LISTEN_TO is not set" : dlerror());
    return NULL;
  }
  *(void**)&get = dlsym(library, "GetPjrtApi");
  real = get();
  table = malloc(real->struct_size);
  memcpy(table, real, real->struct_size);
  theirs = (function*)((char*)real + kFirst);
  own = (function*)(table + kFirst);
  own[kClientCompile] = client_compile;
  own[kCompile] = compile;
  return table;
}
