/* What both kernels share: how the work of a call reaches OpenMP's threads, and how functions are
   exported. */

/* An entry point of GNU's OpenMP library, or of LLVM's and Intel's; neither: the caller's thread alone. */
struct team {
    int32_t threads;
    void (*gomp_parallel)(void (*)(void *), void *, unsigned, unsigned);
    void (*kmpc_fork_call)(void *, int32_t, void (*)(int32_t *, int32_t *, void (*)(void *), void *), ...);
};

/* As LLVM's OpenMP calls it (openmp/runtime/src/kmp.h: kmpc_micro, ident_t). */
static inline void in_team(int32_t *thread, int32_t *team_thread, void (*work)(void *), void *given) {
    (void)thread, (void)team_thread;
    work(given);
}
static struct { int32_t reserved, flags, more[2]; const char *place; } caller = {0, 2, {0, 0},
";kernel;call;0;0;;"};

/* `work(given)` on every thread of the team, at once. */
static inline void on_threads(const struct team *team, void (*work)(void *), void *given) {
    if (team->threads > 1 && team->gomp_parallel) team->gomp_parallel(work, given, team->threads, 0);
    else if (team->threads > 1 && team->kmpc_fork_call) team->kmpc_fork_call(&caller, 2, in_team, work,
        given);
    else work(given);
}

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#define JOINED(a, b) a##_##b
#define NAMED(a, b) JOINED(a, b)
