/* Libraries that are almost plugins: what a table looks like before anything of it is called. */
#include <stddef.h>
#include <string.h>

typedef struct {
  size_t struct_size;
  void* extension_start;
} head;
static struct {
  head head;
  head version_head;
  int major, minor;
  void* functions[138];
} table;

typedef struct {
  head head;
  const void* error;
  const char* message;
  size_t size;
} message_args;
typedef struct {
  head head;
  const void* error;
  int code;
} code_args;

static void destroy(void* args) { (void)args; }
static void message(message_args* args) {
  args->message = "the flux capacitor is empty";
  args->size = strlen(args->message);
}
static void* code(code_args* args) {
  args->code = 14; /* UNAVAILABLE */
  return NULL;
}
static void* fails(void* args) { return args; }
static void* works(void* args) {
  (void)args;
  return NULL;
}

const void* GetPjrtApi(void) {
  size_t i;
  for (i = 0; i < 138; ++i) table.functions[i] = (void*)fails;
  table.head.struct_size = sizeof table;
  table.minor = 114;
  table.functions[0] = (void*)destroy;
  table.functions[1] = (void*)message;
  table.functions[2] = (void*)code;
#ifdef MAJOR
  table.major = MAJOR;
#endif
#ifdef FUNCTIONS
  table.minor = 20;
  table.head.struct_size = 40 + FUNCTIONS * sizeof(void*);
#endif
#ifdef INITIALIZES
  table.functions[3] = (void*)works;
#endif
  (void)works;
  return &table;
}
