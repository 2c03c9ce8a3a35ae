/* A process as a file: image_write() writes this process, image_become() turns another one into it.
 *
 * What is still a page of a file that the other process can map is not written. Where both are forks of one zygote, the
 * interpreter, the libraries, the stack, the heap's beginning and the kernel's own pages have the same addresses, and
 * stay mapped. Where they are not, nothing stays. README.md beside this file explains the whole way. x86-64 Linux.
 *
 * No C library: the writer must not change the heap that it writes, and the other side goes on while its memory is
 * replaced. No data that is written to, either: this code stays where it is mapped, its data would not.
 *
 * An image is one header page, then pages, then three tables and their text. The process that becomes an image trusts it as
 * far as its own past: both run in the same jail. Nothing outside a jail reads more than the header.
 */
#include <stddef.h>
#include <stdint.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/rseq.h>
#include <linux/stat.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096ul
#define MAGIC 0x33474d49544e4543ul /* "CENTIMG3" */
#define ARCH_SET_FS 0x1002
#define ARCH_GET_FS 0x1003
#define RSEQ_SIGNATURE 0x53053053
#define SIGNALS 64
#define STACK (64 * PAGE)
#define MAX_REGIONS 32768ul
#define MAX_RUNS 262144ul
#define MAX_FILES 1024ul
#define MAX_TEXT (4ul << 20)
#define MAX_PASSED 4
#define MAX_KERNELS 4
#define SLACK (256 * PAGE) /* what a process may come to have between the count and the writing */
/* Shorter runs are read. A mapping costs a region of memory, of which a process may have 65,530. */
#define MAPPED_RUN 16
/* A store keeps chunks of this size once. Longer runs begin in the file as far into one as in memory, so that what comes
 * before them may grow and they still have the same chunks. */
#define CHUNK (16 * PAGE)
#define LONG_RUN 256
#define LONGEST_SCAN 512 /* entries of pagemap that are read at once */

/* PLAIN: memory, that of files without a name too. COMMON: of the zygote's memory file, see `zygote/memory_layout_unsafe`. */
enum kind { PLAIN, NAMED, COMMON, KERNELS };

struct registers { uint64_t rbx, rbp, r12, r13, r14, r15, rsp, rip; uint32_t mxcsr, x87; };
struct action { uint64_t handler, flags, restorer, mask; };
struct signal_stack { uint64_t base; int32_t flags, pad; uint64_t size; };
struct region { uint64_t start, end, offset, device, inode; uint32_t name; uint8_t access, kind, shared, stack, whole, written; };
struct run { uint64_t at, pages, offset; };
/* Where an image is from `start` on: from `offset` on in its own file, or in its base. */
struct part { uint64_t start, offset, in_base; };
/* size: of the image, which is whole in its file, or in parts of two. */
struct source { int32_t fds[2]; uint64_t size, count; const struct part *parts; };
struct file { int32_t number, flags, close_on_exec; uint32_t name; int64_t position; };
/* What a named file was when it was mapped, looked at before it is mapped again. */
struct named { uint32_t name, executed; uint64_t inode, size, seconds, nanoseconds; };

struct header {
    uint64_t magic, size, tables, regions, runs, files, named, text;
    struct registers registers;
    uint64_t fs, tid_address, robust, robust_size, rseq, rseq_size, mask, brk_start, brk, kernels_start, kernels_end;
    uint64_t canary; /* of this execution of Python: another one has another memory file */
    uint64_t kernels_hash, heap_end_at;
    uint64_t common; /* inode of that file, 0 where nothing of it is mapped: read outside the jail, too */
    struct signal_stack signal_stack;
    struct action actions[SIGNALS + 1];
};
_Static_assert(sizeof(struct header) <= PAGE, "the header is one page");
_Static_assert(offsetof(struct header, common) == 248, "state_receiver.py reads it");

/* ---- calls of the kernel ------------------------------------------------------------------------------------ */

static inline long call(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define SIX(name, a, b, c, d, e, f, ...) \
    call(__NR_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define sys(name, ...) SIX(name, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define FAILED(result) ((unsigned long)(result) > -4096ul)
#define TRY(expression) do { long result_ = (long)(expression); if (FAILED(result_)) return result_; } while (0)

/* Compilers call these by themselves. */
__attribute__((visibility("hidden"))) void *memcpy(void *to, const void *from, size_t n) {
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(n)::"memory");
    return to;
}
__attribute__((visibility("hidden"))) void *memset(void *to, int byte, size_t n) {
    void *at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
    return to;
}
static int begins(const char *text, const char *with) { while (*with) if (*text++ != *with++) return 0; return 1; }
static int ends_deleted(const char *text, size_t size) { return size > 10 && begins(text + size - 10, " (deleted)"); }
static uint64_t up(uint64_t size) { return (size + PAGE - 1) & -PAGE; }
static void *anonymous(uint64_t at, uint64_t size, int flags) {
    return (void *)sys(mmap, at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}
/* FNV-1a, a word at a time. */
static uint64_t hash(const uint64_t *at, const uint64_t *end) {
    uint64_t value = 14695981039346656037ul;
    for (; at < end; at++) value = (value ^ *at) * 1099511628211ul;
    return value;
}
/* Reads a number and the character behind it. */
static uint64_t number(const char **at, unsigned base) {
    for (uint64_t value = 0;; ++*at) {
        unsigned c = (unsigned char)**at, digit = c - '0' < 10 ? c - '0' : c - 'a' < 6 ? c - 'a' + 10 : 99;
        if (digit >= base) { *at += c != 0; return value; }
        value = value * base + digit;
    }
}
static long read_at(int fd, void *into, uint64_t size, uint64_t offset) {
    for (char *to = into; size;) {
        long got = sys(pread64, fd, to, size, offset);
        if (FAILED(got)) return got;
        if (!got) return -EIO;
        to += got; size -= got; offset += got;
    }
    return 0;
}
static long write_at(int fd, const void *from, uint64_t size, uint64_t offset) {
    for (const char *at = from; size;) {
        long put = sys(pwrite64, fd, at, size, offset);
        if (FAILED(put)) return put;
        at += put; size -= put; offset += put;
    }
    return 0;
}
static long read_text(const char *path, char *into, size_t room) {
    long fd = sys(open, path, O_RDONLY | O_CLOEXEC, 0), got, size = 0;
    TRY(fd);
    while ((got = sys(read, fd, into + size, room - 1 - size)) > 0) size += got;
    sys(close, fd);
    into[size] = 0;
    return FAILED(got) ? got : size + 1 >= (long)room ? -E2BIG : 0;
}

/* The registers that a call leaves as they were; the others are free at a call. */
long save_registers(struct registers *into) __attribute__((returns_twice, visibility("hidden")));
void go_to(const struct registers *from, long value) __attribute__((noreturn, visibility("hidden")));
__asm__(".text\n.hidden save_registers\nsave_registers:\n"
        "mov %rbx,(%rdi)\nmov %rbp,8(%rdi)\nmov %r12,16(%rdi)\nmov %r13,24(%rdi)\nmov %r14,32(%rdi)\n"
        "mov %r15,40(%rdi)\nlea 8(%rsp),%rax\nmov %rax,48(%rdi)\nmov (%rsp),%rax\nmov %rax,56(%rdi)\n"
        "stmxcsr 64(%rdi)\nfnstcw 68(%rdi)\nxor %eax,%eax\nret\n"
        ".hidden go_to\ngo_to:\n"
        "mov (%rdi),%rbx\nmov 8(%rdi),%rbp\nmov 16(%rdi),%r12\nmov 24(%rdi),%r13\nmov 32(%rdi),%r14\n"
        "mov 40(%rdi),%r15\nldmxcsr 64(%rdi)\nfldcw 68(%rdi)\nmov 48(%rdi),%rsp\nmov %rsi,%rax\njmp *56(%rdi)\n");

/* ---- what a process looks like -------------------------------------------------------------------------------- */

struct tables {
    struct header head;
    struct region regions[MAX_REGIONS];
    struct run runs[MAX_RUNS];
    struct file files[MAX_FILES];
    struct named named[MAX_REGIONS];
    uint64_t entries[LONGEST_SCAN];
    char text[MAX_TEXT], maps[MAX_TEXT];
};

static long add_text(struct tables *t, const char *text, size_t size) {
    uint64_t at = t->head.text;
    if (at + size + 1 > MAX_TEXT) return -E2BIG;
    memcpy(t->text + at, text, size); /* zeros follow */
    t->head.text += size + 1;
    return at;
}

/* Whether a file has a path in this jail. Files of a store have not, which a jail maps by descriptor. */
static int is_here(const char *path, size_t size) {
    struct statx s;
    char copy[4096];
    if (size >= sizeof copy) return 0;
    memcpy(copy, path, size);
    copy[size] = 0;
    return !FAILED(sys(statx, AT_FDCWD, copy, 0, STATX_TYPE, &s));
}

/* Regions of memory, but for those of these tables; the heap's place by the kernel. */
static long look(struct tables *t) {
    struct header *h = &t->head;
    struct region before = {0}; /* the last one of a file with a path */
    uint64_t here = (uint64_t)__builtin_frame_address(0);
    TRY(read_text("/proc/self/maps", t->maps, sizeof t->maps));
    for (const char *at = t->maps; *at;) {
        struct region r = {.start = number(&at, 16)};
        r.end = number(&at, 16);
        r.access = (at[0] == 'r') * PROT_READ | (at[1] == 'w') * PROT_WRITE | (at[2] == 'x') * PROT_EXEC;
        r.shared = at[3] == 's';
        at += 5;
        r.offset = number(&at, 16);
        r.device = number(&at, 16) << 32;
        r.device |= number(&at, 16);
        r.inode = number(&at, 10);
        while (*at == ' ') at++;
        const char *name = at;
        while (*at != '\n') at++;
        size_t size = at++ - name;
        if (r.start >= (uint64_t)t && r.start < (uint64_t)(t + 1)) continue;
        if (begins(name, "[vsyscall]")) continue;
        if (begins(name, "[vdso]") || begins(name, "[vvar")) {
            r.kind = KERNELS;
            if (!h->kernels_start) h->kernels_start = r.start;
            h->kernels_end = r.end;
            if (r.access & PROT_EXEC) h->kernels_hash = hash((uint64_t *)r.start, (uint64_t *)r.end);
        } else if (*name == '/') {
            int common = begins(name, "/memfd:cenote-common");
            int nameless = ends_deleted(name, size) || begins(name, "/memfd:");
            int has_path = !common && !nameless, again = r.inode == before.inode && r.device == before.device;
            int elsewhere = has_path && (again ? before.kind == PLAIN : !is_here(name, size));
            r.kind = common && !r.shared ? COMMON : nameless || elsewhere ? PLAIN : NAMED;
            r.whole = r.kind == PLAIN;
            if (r.kind == COMMON) h->common = r.inode;
            if (r.kind == NAMED && begins(name, "/dev/") && !begins(name, "/dev/shm/")) return -ENODEV;
            int same = again && before.kind == NAMED;
            if (r.kind == NAMED) {
                long kept = same ? (long)before.name : add_text(t, name, size);
                TRY(kept);
                r.name = kept;
            }
            if (has_path) before = r;
        }
        /* The kernel's own "[stack]" is wrong in a process that has become another. */
        r.stack = here >= r.start && here < r.end;
        if (h->regions == MAX_REGIONS) return -E2BIG;
        t->regions[h->regions++] = r;
    }
    /* Field 47 of stat, counted from behind the name, which may hold anything. */
    TRY(read_text("/proc/self/stat", t->maps, sizeof t->maps));
    const char *at = t->maps;
    for (const char *c = at; *c; c++) if (*c == ')') at = c + 4; /* behind the state's letter */
    for (int field = 4; field < 47; field++) { at += *at == '-'; number(&at, 10); }
    h->brk_start = number(&at, 10);
    h->brk = sys(brk, 0);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Of glibc; weak, since other C libraries have none. */
extern char *__curbrk __attribute__((weak)); /* where it takes the heap to end */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static long look_at_thread(struct header *h) {
    TRY(sys(arch_prctl, ARCH_GET_FS, &h->fs));
    h->canary = ((uint64_t *)h->fs)[5]; /* the ABI says where */
    h->heap_end_at = (uint64_t)&__curbrk;
    int has_rseq = &__rseq_size && __rseq_size;
    h->rseq = has_rseq ? h->fs + __rseq_offset : 0;
    h->rseq_size = has_rseq && __rseq_size > 32 ? (__rseq_size + 31u) & -32u : 32;
    TRY(sys(prctl, PR_GET_TID_ADDRESS, &h->tid_address));
    TRY(sys(get_robust_list, 0, &h->robust, &h->robust_size));
    for (int signal = 1; signal <= SIGNALS; signal++) sys(rt_sigaction, signal, 0, &h->actions[signal], 8);
    TRY(sys(rt_sigprocmask, 0, 0, &h->mask, 8));
    return sys(sigaltstack, 0, &h->signal_stack);
}

/* Files and folders that have a name. Whatever else is open is for the process that becomes this one to bring. */
static long look_at_files(struct tables *t, int image) {
    char path[40] = "/proc/self/fd/", target[4096];
    for (int fd = 3; fd < 4096; fd++) {
        long close_on_exec = sys(fcntl, fd, F_GETFD);
        if (FAILED(close_on_exec) || fd == image) continue;
        int digits = fd > 999 ? 4 : fd > 99 ? 3 : fd > 9 ? 2 : 1;
        for (int rest = fd, i = digits; i--; rest /= 10) path[14 + i] = '0' + rest % 10;
        path[14 + digits] = 0;
        long size = sys(readlink, path, target, sizeof target - 1);
        if (size <= 0 || target[0] != '/' || begins(target, "/memfd:") || begins(target, "/proc/")) continue;
        if (ends_deleted(target, size) || (begins(target, "/dev/") && !begins(target, "/dev/null"))) continue;
        if (t->head.files == MAX_FILES) return -EMFILE;
        long flags = sys(fcntl, fd, F_GETFL), name = add_text(t, target, size);
        TRY(name);
        t->files[t->head.files++] = (struct file){fd, flags & ~(O_CREAT | O_EXCL | O_TRUNC), close_on_exec & 1, name,
                                                  sys(lseek, fd, 0, 1)};
    }
    return 0;
}

static long look_at_file(const char *path, struct named *into) {
    struct statx s;
    TRY(sys(statx, AT_FDCWD, path, 0, STATX_BASIC_STATS, &s));
    into->inode = s.stx_ino; into->size = s.stx_size;
    into->seconds = s.stx_mtime.tv_sec; into->nanoseconds = s.stx_mtime.tv_nsec;
    return 0;
}

/* fd < 0: only counts. */
struct writer { struct tables *t; int fd, pagemap; uint64_t written; struct run run; };

static long end_run(struct writer *w) {
    struct header *h = &w->t->head;
    if (!w->run.pages) return 0;
    if (h->runs == MAX_RUNS) return -E2BIG;
    if (w->run.pages >= LONG_RUN) /* zeros are there already; counted, it is more than can be needed */
        w->written += w->fd < 0 ? CHUNK : (w->run.at - w->written) % CHUNK;
    w->run.offset = w->written;
    w->written += w->run.pages * PAGE;
    if (w->fd >= 0) TRY(write_at(w->fd, (void *)w->run.at, w->run.pages * PAGE, w->run.offset));
    w->t->runs[h->runs++] = w->run;
    w->run.pages = 0;
    return 0;
}

static int is_zero(const uint64_t *page) {
    for (size_t i = 0; i < PAGE / 8; i++) if (page[i]) return 0;
    return 1;
}

static long add_page(struct writer *w, uint64_t page) {
    if (w->run.pages && w->run.at + w->run.pages * PAGE != page) TRY(end_run(w));
    if (!w->run.pages) w->run.at = page;
    w->run.pages++;
    return 0;
}

/* From the kernel's Documentation/admin-guide/mm/pagemap.rst. */
#define IS_PRESENT (1ul << 63)
#define IS_SWAPPED (1ul << 62)
#define IS_OF_FILE (1ul << 61)

static long write_region(struct writer *w, struct region *r) {
    if (r->kind == KERNELS || (r->kind == NAMED && r->shared)) return 0;
    /* What has no page of its own is found in the file, where that can be mapped again. */
    int may_be_zero = r->kind == PLAIN && !r->whole, closed = !(r->access & PROT_READ);
    for (uint64_t page = r->start; page < r->end;) {
        uint64_t count = (r->end - page) / PAGE;
        if (count > LONGEST_SCAN) count = LONGEST_SCAN;
        TRY(read_at(w->pagemap, w->t->entries, count * 8, page / PAGE * 8));
        for (uint64_t i = 0; i < count; i++, page += PAGE) {
            uint64_t entry = w->t->entries[i];
            if (!r->whole && (!(entry & (IS_PRESENT | IS_SWAPPED)) || entry & IS_OF_FILE)) continue;
            if (closed) TRY(sys(mprotect, r->start, r->end - r->start, r->access | PROT_READ));
            closed = 0;
            if (w->fd >= 0 && may_be_zero && is_zero((void *)page)) continue;
            TRY(add_page(w, page));
            r->written = 1;
        }
    }
    return end_run(w);
}

static long write_regions(struct writer *w) {
    struct tables *t = w->t;
    w->pagemap = sys(open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    TRY(w->pagemap);
    w->written = PAGE;
    long result = 0;
    for (uint64_t i = 0; i < t->head.regions && !FAILED(result); i++) result = write_region(w, &t->regions[i]);
    sys(close, w->pagemap);
    return result;
}

static uint64_t table_size(const struct header *h) {
    return h->regions * sizeof(struct region) + h->runs * sizeof(struct run) + h->files * sizeof(struct file) +
        h->named * sizeof(struct named) + h->text;
}

/* How many bytes an image of this process may have. Negative: an error's number. */
EXPORT long image_size(void) {
    struct tables *t = anonymous(0, sizeof *t, MAP_NORESERVE);
    TRY(t);
    long result = look(t);
    struct writer w = {.t = t, .fd = -1};
    if (!FAILED(result)) result = write_regions(&w);
    if (!FAILED(result)) result = w.written + table_size(&t->head) + SLACK;
    sys(munmap, t, sizeof *t);
    return result;
}

static long write_tables(struct writer *w) {
    struct header *h = &w->t->head;
    h->tables = w->written;
    const struct { const void *at; uint64_t size; } parts[] = {
        {w->t->regions, h->regions * sizeof(struct region)}, {w->t->runs, h->runs * sizeof(struct run)},
        {w->t->files, h->files * sizeof(struct file)}, {w->t->named, h->named * sizeof(struct named)},
        {w->t->text, h->text}};
    for (int i = 0; i < 5; i++) {
        TRY(write_at(w->fd, parts[i].at, parts[i].size, w->written));
        w->written += parts[i].size;
    }
    h->magic = MAGIC; h->size = w->written;
    return write_at(w->fd, h, sizeof *h, 0);
}

/* Writes this process, which has one thread, into the file. Gives 0 when that is done, an error's number below 0, and
 * 1 in the process that has become the image. `passed` is filled there with the descriptors that it was given. */
EXPORT long image_write(int fd, int *passed) {
    struct tables *t = anonymous(0, sizeof *t, MAP_NORESERVE);
    TRY(t);
    struct registers registers;
    const uint64_t *arena = (uint64_t *)save_registers(&registers);
    if (arena) {
        const int *given = (int *)(arena + 1);
        for (int i = 0; i < MAX_PASSED; i++) passed[i] = given[i];
        sys(munmap, arena, arena[0]);
        return 1;
    }
    struct writer w = {.t = t, .fd = fd};
    t->head.registers = registers;
    long result = look_at_thread(&t->head);
    if (!FAILED(result)) result = look(t);
    if (!FAILED(result)) result = look_at_files(t, fd);
    for (uint64_t i = 0, last = -1ul; i < t->head.regions && !FAILED(result); i++) {
        const struct region *r = &t->regions[i];
        if (r->kind != NAMED) continue;
        struct named *n = &t->named[t->head.named - (r->name == last)];
        n->executed |= r->access & PROT_EXEC;
        if (r->name == last) continue;
        t->head.named++;
        n->name = last = r->name;
        result = look_at_file(t->text + r->name, n);
    }
    if (!FAILED(result)) result = write_regions(&w);
    if (!FAILED(result)) result = write_tables(&w);
    sys(munmap, t, sizeof *t);
    return FAILED(result) ? result : 0;
}

/* ---- becoming ---------------------------------------------------------------------------------------------------- */

/* A part of the image's region, or of what is here now and goes. */
struct piece { uint64_t start, end; uint32_t region, access; int fd; };

struct arena {
    uint64_t size; int passed[MAX_PASSED]; /* read by image_write */
    struct source image;
    int common, foreign; /* common: the memory file of the image's zygote, or -1. foreign: that is another zygote */
    uint64_t rseq, rseq_size;
    const struct header *head;
    const struct region *regions; const struct run *runs; const struct file *files; const struct named *named;
    const char *text;
    struct piece *kept, *made, *gone;
    uint64_t kept_count, made_count, gone_count, most;
    uint64_t brk_start, code, parking; /* of what is here now; and places in the arena for code and the kernel's pages */
    struct region kernels[MAX_KERNELS]; /* these, where they are now */
    uint64_t kernels_count;
};

static long add_piece(struct arena *a, struct piece *list, uint64_t *count, struct piece piece) {
    if (piece.start >= piece.end) return 0;
    if (*count == a->most) return -E2BIG;
    list[(*count)++] = piece;
    return 0;
}

static int is_same(const struct arena *a, const struct region *one, const struct region *other) {
    return one->kind != PLAIN && one->kind == other->kind && !(a->foreign && one->kind == COMMON) && !one->shared && !other->shared &&
        one->inode == other->inode && one->device == other->device && one->start - one->offset == other->start - other->offset;
}

/* What stays mapped, what is mapped anew, and what goes: pages of files that both have at one place stay. */
static long plan(struct arena *a, const struct tables *now) {
    const struct region *here = now->regions, *last_here = here + now->head.regions;
    uint64_t low = (uint64_t)a, high = low + a->size;
    for (uint64_t i = 0; i < a->head->regions; i++) {
        const struct region *r = &a->regions[i];
        uint64_t done = r->start;
        if (r->kind == KERNELS) continue;
        while (here < last_here && here->end <= r->start) here++;
        for (const struct region *n = here; n < last_here && n->start < r->end && r->kind != PLAIN; n++) {
            uint64_t start = n->start > done ? n->start : done, end = n->end < r->end ? n->end : r->end;
            if (start >= end || !is_same(a, r, n)) continue;
            TRY(add_piece(a, a->made, &a->made_count, (struct piece){done, start, i, 0, -1}));
            TRY(add_piece(a, a->kept, &a->kept_count, (struct piece){start, end, i, n->access, -1}));
            done = end;
        }
        TRY(add_piece(a, a->made, &a->made_count, (struct piece){done, r->end, i, 0, -1}));
    }
    uint64_t k = 0;
    for (const struct region *n = now->regions; n < last_here; n++) {
        uint64_t done = n->start;
        if (n->kind == KERNELS || (n->start >= low && n->start < high)) continue;
        while (k < a->kept_count && a->kept[k].end <= done) k++;
        for (uint64_t i = k; i < a->kept_count && a->kept[i].start < n->end; i++) {
            TRY(add_piece(a, a->gone, &a->gone_count, (struct piece){.start = done, .end = a->kept[i].start}));
            done = a->kept[i].end;
        }
        TRY(add_piece(a, a->gone, &a->gone_count, (struct piece){.start = done, .end = n->end}));
    }
    return 0;
}

static int covers(const struct piece *list, uint64_t count, uint64_t address) {
    for (; count--; list++) if (address >= list->start && address < list->end) return 1;
    return 0;
}

/* Opens what will be mapped by name, at numbers that the image's own files have not. */
static long open_named(struct arena *a, int *next) {
    int fd = -1;
    uint32_t open = -1u;
    for (uint64_t i = 0; i < a->made_count; i++) {
        const struct region *r = &a->regions[a->made[i].region];
        if (r->kind == COMMON && a->common < 0) return -EXDEV; /* unchanged pages are nowhere else */
        if (r->kind != NAMED) continue;
        if (r->name != open || r->shared) {
            const char *path = a->text + r->name;
            struct named found = {0}, *was = (struct named *)a->named;
            while (was < a->named + a->head->named && was->name != r->name) was++;
            if (was == a->named + a->head->named) return -EINVAL;
            TRY(look_at_file(path, &found));
            /* One that programs write to may be another copy of it by now. A library may not. */
            if (!r->shared && (found.size != was->size || found.seconds != was->seconds ||
                               found.nanoseconds != was->nanoseconds)) return -ESTALE;
            if (was->executed && found.inode != was->inode) return -ESTALE;
            long opened = sys(open, path, (r->shared && r->access & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0);
            TRY(opened);
            fd = sys(fcntl, opened, F_DUPFD_CLOEXEC, *next);
            sys(close, opened);
            TRY(fd);
            *next = fd + 1;
            open = r->name;
        }
        a->made[i].fd = fd;
    }
    return 0;
}

/* There is no way back, nor a way to report: a failure ends the process. Its warden hears of that. */
#define MUST(expression) do { if (FAILED((long)(expression))) { sys(exit_group, 112); __builtin_trap(); } } while (0)

/* Something is written to their memory before it has the access that it has in the end. */
static int is_filled(const struct region *r) { return r->written; }

static void map_regions(const struct arena *a) {
    for (uint64_t i = 0; i < a->kept_count; i++) {
        const struct piece *p = &a->kept[i];
        const struct region *r = &a->regions[p->region];
        int access = is_filled(r) ? PROT_READ | PROT_WRITE : r->access;
        /* What was written to here is of no use. */
        if (is_filled(r) || (p->access | r->access) & PROT_WRITE) MUST(sys(madvise, p->start, p->end - p->start, MADV_DONTNEED));
        if ((int)p->access != access) MUST(sys(mprotect, p->start, p->end - p->start, access));
    }
    for (uint64_t i = 0; i < a->made_count; i++) {
        const struct piece *p = &a->made[i];
        const struct region *r = &a->regions[p->region];
        int flags = MAP_FIXED | (r->shared ? MAP_SHARED : MAP_PRIVATE) | (r->stack ? MAP_GROWSDOWN | MAP_STACK : 0);
        int fd = r->kind == COMMON ? a->common : p->fd;
        if (fd < 0) flags |= MAP_ANONYMOUS;
        MUST(sys(mmap, p->start, p->end - p->start, is_filled(r) ? PROT_READ | PROT_WRITE : r->access, flags, fd,
                 fd < 0 ? 0 : r->offset + (p->start - r->start)));
    }
    /* Other jails map this file: it is closed before anything that this image's own program wrote can be run. */
    if (a->common >= 0) MUST(sys(close, a->common));
}

/* Which file has the byte at `offset` of an image, and where. Gives how many follow there. */
static uint64_t place(const struct source *s, uint64_t offset, int *fd, uint64_t *at) {
    uint64_t low = 0;
    for (uint64_t high = s->count; high - low > 1;) {
        uint64_t middle = (low + high) / 2;
        if (s->parts[middle].start <= offset) low = middle; else high = middle;
    }
    const struct part *p = &s->parts[low];
    *fd = s->fds[p->in_base != 0];
    *at = p->offset + (offset - p->start);
    return (low + 1 < s->count ? p[1].start : s->size) - offset;
}

static long read_image(const struct source *s, void *into, uint64_t size, uint64_t offset) {
    if (offset > s->size || size > s->size - offset) return -EIO;
    for (char *to = into; size;) {
        int fd;
        uint64_t at, here = place(s, offset, &fd, &at);
        if (here > size) here = size;
        TRY(read_at(fd, to, here, at));
        to += here; size -= here; offset += here;
    }
    return 0;
}

static long fill(const struct source *s, const struct run *run, int may_map) {
    uint64_t size = run->pages * PAGE;
    for (uint64_t done = 0; done < size;) {
        int fd;
        uint64_t at, here = place(s, run->offset + done, &fd, &at);
        if (here > size - done) here = size - done;
        if (may_map && here >= MAPPED_RUN * PAGE)
            TRY(sys(mmap, run->at + done, here, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE, fd, at));
        else TRY(read_at(fd, (void *)(run->at + done), here, at));
        done += here;
    }
    return 0;
}

static void fill_regions(const struct arena *a) {
    const struct region *r = a->regions, *last = r + a->head->regions - 1;
    for (const struct run *run = a->runs; run < a->runs + a->head->runs; run++) {
        while (r < last && r->end <= run->at) r++;
        if (run->offset > a->image.size || run->pages > (a->image.size - run->offset) / PAGE) MUST(-EIO);
        MUST(fill(&a->image, run, !r->shared && !r->stack));
    }
    for (r = a->regions; r <= last; r++)
        if (is_filled(r) && r->access != (PROT_READ | PROT_WRITE))
            MUST(sys(mprotect, r->start, r->end - r->start, r->access));
}

/* One that cannot be opened is closed afterwards, and the program is told by name. */
static void open_files(const struct arena *a) {
    for (const struct file *f = a->files; f < a->files + a->head->files; f++) {
        long fd = sys(open, a->text + f->name, f->flags | O_CLOEXEC, 0);
        if (FAILED(fd)) continue;
        if (f->position >= 0) sys(lseek, fd, f->position, 0);
        if (fd != f->number) { sys(dup3, fd, f->number, O_CLOEXEC); sys(close, fd); }
        sys(fcntl, f->number, F_SETFD, f->close_on_exec);
    }
}

/* Gives the heap the size that it had in the image, where both begin at one place. */
static void restore_heap(const struct header *h) {
    uint64_t brk = sys(brk, 0);
    if ((uint64_t)sys(brk, h->brk) != h->brk) MUST(-ENOMEM);
    if (brk < h->brk) MUST(sys(munmap, up(brk), up(h->brk) - up(brk))); /* the image may have holes there */
}

/* The kernel's heap begins elsewhere and is empty. The C library gets to know the end, so that it gives nothing back
 * from its own heap. A closed page there makes the kernel refuse to let it grow: glibc then goes on with mappings. It
 * would end the process if it got memory at a lower address than before, and where it was before only glibc knows. */
static void move_heap(const struct header *h) {
    uint64_t end = sys(brk, 0);
    *(uint64_t *)h->heap_end_at = end;
    MUST(sys(mmap, up(end), PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
}

/* All parts together, since the kernel's code finds its data by distance. */
static long move_kernels(struct arena *a, uint64_t to) {
    uint64_t from = a->kernels[0].start;
    for (uint64_t i = 0; i < a->kernels_count; i++) {
        struct region *r = &a->kernels[i];
        uint64_t size = r->end - r->start, at = to + (r->start - from);
        TRY(sys(mremap, r->start, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at));
        r->start = at; r->end = at + size;
    }
    return 0;
}

__attribute__((noreturn)) static void become(struct arena *a) {
    const struct header *h = a->head;
    uint64_t all = ~0ul;
    sys(rt_sigprocmask, 2, &all, 0, 8);
    /* The kernel writes there when it has preempted this thread, and kills it when it cannot. */
    if (a->rseq) MUST(sys(rseq, a->rseq, a->rseq_size, RSEQ_FLAG_UNREGISTER, RSEQ_SIGNATURE));
    sys(set_robust_list, 0, 24);
    /* A heap gets smaller before its memory goes: the kernel would not move the end. */
    uint64_t end = a->foreign ? a->brk_start : h->brk;
    if (end < (uint64_t)sys(brk, 0)) sys(brk, end);
    for (uint64_t i = 0; i < a->gone_count; i++) MUST(sys(munmap, a->gone[i].start, a->gone[i].end - a->gone[i].start));
    int moves_heap = a->brk_start != h->brk_start;
    if (!moves_heap) restore_heap(h);
    map_regions(a);
    fill_regions(a);
    if (moves_heap) move_heap(h);
    if (a->foreign) MUST(move_kernels(a, h->kernels_start));
    for (uint64_t i = 0; i < a->made_count; i++) if (a->made[i].fd >= 0) sys(close, a->made[i].fd);
    for (int i = 0; i < 2; i++) if (a->image.fds[i] >= 0) sys(close, a->image.fds[i]);
    open_files(a);
    MUST(sys(arch_prctl, ARCH_SET_FS, h->fs));
    long tid = sys(set_tid_address, h->tid_address);
    if (h->tid_address) *(int32_t *)h->tid_address = tid; /* glibc's copy of it, for locks that know their owner */
    sys(set_robust_list, h->robust, h->robust_size);
    if (h->rseq) MUST(sys(rseq, h->rseq, h->rseq_size, 0, RSEQ_SIGNATURE));
    for (int signal = 1; signal <= SIGNALS; signal++) sys(rt_sigaction, signal, &h->actions[signal], 0, 8);
    if (!(h->signal_stack.flags & 2)) sys(sigaltstack, &h->signal_stack, 0);
    sys(rt_sigprocmask, 2, &h->mask, 0, 8);
    go_to(&h->registers, (long)a);
}

static int is_free(const struct region *r, uint64_t count, uint64_t start, uint64_t end) {
    for (; count--; r++) if (r->start < end + 256 * PAGE && start < r->end + 256 * PAGE) return 0;
    return 1;
}

/* The linker says where this code begins and ends. */
extern const char __ehdr_start, _end;
#define CODE ((uint64_t)&__ehdr_start & -PAGE)
#define CODE_SIZE (up((uint64_t)&_end) - CODE)

static int is_foreign(const struct header *h, const struct header *now) {
    return h->canary != now->canary || h->brk_start != now->brk_start || h->kernels_start != now->kernels_start ||
        h->kernels_end != now->kernels_end;
}

/* At a place that is free here and in the image. */
static struct arena *make_arena(const struct source *image, const struct header *h, const struct region *wanted,
                                const struct tables *now) {
    int foreign = is_foreign(h, &now->head);
    uint64_t most = h->regions + now->head.regions + 64, kernels = now->head.kernels_end - now->head.kernels_start;
    uint64_t size = up(sizeof(struct arena)) + PAGE + up(table_size(h)) + up(3 * 2 * most * sizeof(struct piece)) + STACK +
        up(image->count * sizeof(struct part)) +
        (foreign ? kernels + CODE_SIZE : 0);
    for (uint64_t at = 0x100000000ul; at < 0x7f0000000000ul; at += 0x10000000ul) {
        if (!is_free(wanted, h->regions, at, at + size) || !is_free(now->regions, now->head.regions, at, at + size)) continue;
        struct arena *a = anonymous(at, size, MAP_FIXED_NOREPLACE);
        if (FAILED(a)) continue;
        char *place = (char *)a + up(sizeof *a);
        a->size = size; a->most = 2 * most; a->foreign = foreign; a->brk_start = now->head.brk_start;
        a->code = foreign ? at + size - CODE_SIZE : CODE;
        a->parking = a->code - STACK - kernels;
        a->head = (void *)place; place += PAGE;
        *(struct header *)a->head = *h;
        a->regions = (void *)place;
        a->runs = (void *)(a->regions + h->regions);
        a->files = (void *)(a->runs + h->runs);
        a->named = (void *)(a->files + h->files);
        a->text = (void *)(a->named + h->named);
        place += up(table_size(h));
        a->image = *image;
        a->image.parts = (void *)place;
        memcpy(place, image->parts, image->count * sizeof(struct part));
        place += up(image->count * sizeof(struct part));
        a->kept = (void *)place; a->made = a->kept + a->most; a->gone = a->made + a->most;
        return a;
    }
    return (void *)-ENOMEM;
}

static int is_sane(const struct header *h, uint64_t size) {
    return h->magic == MAGIC && h->size <= size && h->tables <= h->size && h->regions && h->regions <= MAX_REGIONS &&
        h->runs <= MAX_RUNS && h->files <= MAX_FILES && h->named <= MAX_REGIONS && h->text <= MAX_TEXT &&
        table_size(h) <= h->size - h->tables;
}

/* Copies this code to where it stays mapped. What it reads is beside it. */
static long copy_code(const struct arena *a, const struct tables *now) {
    for (const struct region *r = now->regions; r < now->regions + now->head.regions; r++)
        if (r->start >= CODE && r->start < CODE + CODE_SIZE && r->access & PROT_READ)
            memcpy((void *)(a->code + (r->start - CODE)), (void *)r->start,
                   (r->end < CODE + CODE_SIZE ? r->end : CODE + CODE_SIZE) - r->start);
    return sys(mprotect, a->code, CODE_SIZE, PROT_READ | PROT_EXEC);
}

/* What must be so that nothing of this process needs to stay. */
static long prepare_foreign(struct arena *a, const struct tables *now) {
    const struct header *h = a->head;
    if (h->kernels_hash != now->head.kernels_hash ||
        h->kernels_end - h->kernels_start != now->head.kernels_end - now->head.kernels_start) return -ENOTUNIQ;
    for (uint64_t i = 0; i < now->head.regions; i++) {
        if (now->regions[i].kind != KERNELS) continue;
        if (a->kernels_count == MAX_KERNELS) return -E2BIG;
        a->kernels[a->kernels_count++] = now->regions[i];
    }
    int moves_heap = a->brk_start != h->brk_start;
    if (moves_heap && !h->heap_end_at) return -EADDRINUSE;
    uint64_t closed = up(a->brk_start);
    for (uint64_t i = 0; i < h->regions && moves_heap; i++)
        if (a->regions[i].start < closed + PAGE && closed < a->regions[i].end) return -EADDRINUSE;
    return copy_code(a, now);
}

static long prepare(struct arena *a, const struct tables *now, int common, const int *passed, int count) {
    const struct header *h = a->head;
    TRY(read_image(&a->image, (void *)a->regions, table_size(h), h->tables));
    if (h->text && a->text[h->text - 1]) return -EINVAL;
    int next = 64;
    for (uint64_t i = 0; i < h->files; i++) if (a->files[i].number >= next) next = a->files[i].number + 1;
    a->common = common;
    TRY(plan(a, now));
    if (a->foreign) TRY(prepare_foreign(a, now));
    else if (!covers(a->kept, a->kept_count, (uint64_t)&become)) return -ELIBACC;
    TRY(open_named(a, &next));
    for (int i = 0; i < 2; i++) {
        if (a->image.fds[i] < 0) continue;
        a->image.fds[i] = sys(fcntl, a->image.fds[i], F_DUPFD_CLOEXEC, next);
        TRY(a->image.fds[i]);
        next = a->image.fds[i] + 1;
    }
    if (common >= 0) {
        a->common = sys(fcntl, common, F_DUPFD_CLOEXEC, next);
        TRY(a->common);
        next = a->common + 1;
    }
    for (int i = 0; i < count; i++) {
        a->passed[i] = sys(fcntl, passed[i], F_DUPFD_CLOEXEC, next);
        TRY(a->passed[i]);
    }
    return 0;
}

/* Becomes the process in the image. common: a file with the bytes of its zygote's memory file; -1 for none, which an
 * image of this zygote rarely needs: where memory of that was unmapped here. It keeps the descriptors below `fixed`, and
 * those in `passed`, under numbers that it is told; all others are closed. Gives an error's number, below 0, when it
 * cannot: nothing has changed then, but for descriptors. See `_REASONS` in `image_unsafe.py`. */
EXPORT long image_become(const struct source *image, int common, int fixed, const int *passed, int count) {
    struct header first;
    TRY(read_image(image, &first, sizeof first, 0));
    if (!is_sane(&first, image->size) || count > MAX_PASSED) return -EINVAL;
    struct tables *now = anonymous(0, sizeof *now, MAP_NORESERVE);
    TRY(now);
    long result = look(now);
    if (!FAILED(result)) result = look_at_thread(&now->head);
    struct arena *a = (void *)-ENOMEM;
    if (!FAILED(result)) {
        struct region *wanted = anonymous(0, up(first.regions * sizeof *wanted), 0);
        result = FAILED(wanted) ? (long)wanted : read_image(image, wanted, first.regions * sizeof *wanted, first.tables);
        if (!FAILED(result)) result = (long)(a = make_arena(image, &first, wanted, now));
        if (!FAILED(wanted)) sys(munmap, wanted, up(first.regions * sizeof *wanted));
    }
    if (!FAILED(result)) result = prepare(a, now, common, passed, count);
    if (!FAILED(result)) {
        a->rseq = now->head.rseq; a->rseq_size = now->head.rseq_size;
        int lowest = a->image.fds[0];
        for (uint64_t i = 0; i < a->made_count; i++) if (a->made[i].fd >= 0 && a->made[i].fd < lowest) lowest = a->made[i].fd;
        sys(close_range, fixed, lowest - 1, 0);
    }
    sys(munmap, now, sizeof *now);
    if (!FAILED(result) && a->foreign) {
        uint64_t from = a->kernels[0].start;
        result = move_kernels(a, a->parking); /* some kernels do not let them be moved */
        if (FAILED(result) && FAILED(move_kernels(a, from))) MUST(result);
    }
    if (FAILED(result)) {
        for (uint64_t i = 0; !FAILED(a) && i < a->made_count; i++) if (a->made[i].fd >= 0) sys(close, a->made[i].fd);
        if (!FAILED(a)) sys(munmap, a, a->size);
        return result;
    }
    /* Onto a stack that is in neither process. */
    uint64_t code = a->code + ((uint64_t)become - CODE), stack = a->foreign ? a->code : (uint64_t)a + a->size;
    __asm__ volatile("mov %0,%%rsp\nxor %%ebp,%%ebp\ncall *%1\n" ::"r"(stack), "r"(code), "D"(a));
    __builtin_unreachable();
}
