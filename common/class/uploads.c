// Archives are read by libarchive. Limits hold for each archive of a folder: an archive may be made
// to be endless.

#include "class/uploads.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "class/names.h"
#include <uninorm.h>

#define MAX_ENTRIES  20000
#define MAX_ARCHIVE  (64 << 20)  // bytes of an archive in another
#define MAX_UNPACKED (1LL << 30) // bytes that are read of an archive
#define MAX_SECONDS  20          // for an archive
#define MAX_DEPTH    4           // archives in archives
#define FIRST_TIME   347155200LL // 1981: a zip without a time has its first one, of 1980

static const char too_large[] = "an archive of too many or too large files, read in part";

typedef bool Wanted(const char *name);

typedef struct {
    Uploads *uploads;
    Wanted *is_wanted;
    int depth; // 0: in a folder, or in the archive of all submissions
} Reader;

// What was read of an archive, and the time at which that ends.
typedef struct {
    long long done;
    double end;
} ArchiveProgress;

// ---- Names.

const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_in(const char *name, const char *const *endings)
{
    size_t length = strlen(name);
    for (; *endings; endings++) {
        size_t size = strlen(*endings);
        if (length > size && strcasecmp(name + length - size, *endings) == 0)
            return true;
    }
    return false;
}

bool is_archive(const char *name)
{
    static const char *const endings[] = {".zip",    ".tar",     ".tgz",     ".tar.gz",
                                          ".tar.xz", ".tar.bz2", ".tar.zst", ".txz",
                                          ".tbz2",   ".tbz",     ".7z",      NULL};
    return ends_in(name, endings);
}

// A single file, compressed.
static bool is_compressed(const char *name)
{
    static const char *const endings[] = {".gz", ".bz2", ".xz", ".zst", NULL};
    return !is_archive(name) && ends_in(name, endings);
}

// What is named, and not opened.
static const char *never_opened(const char *name)
{
    static const char *const rar[] = {".rar", NULL}, *const others[] = {".iso", ".img", ".dmg",
                                                                        ".cab", ".lzh", ".arj",
                                                                        ".z",   NULL};
    return ends_in(name, rar)      ? "a RAR archive, which is not opened: ask for a zip"
           : ends_in(name, others) ? "an archive of a kind that is not opened: ask for a zip"
                                   : NULL;
}

// Left behind by systems and editors.
static bool is_litter(const char *path)
{
    static const char *const folders[] = {"__MACOSX", ".git", ".svn", ".vscode", ".idea", NULL};
    static const char *const files[] = {".DS_Store", "Thumbs.db", "desktop.ini", NULL};
    const char *name = last_part(path);
    for (int i = 0; files[i]; i++)
        if (strcasecmp(name, files[i]) == 0)
            return true;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        for (int i = 0; folders[i]; i++)
            if (strncmp(at, folders[i], strlen(folders[i])) == 0 && at[strlen(folders[i])] == '/')
                return true;
    return strncmp(name, "._", 2) == 0;
}

// A path with composed letters and in one line; of an archive, with slashes, whatever system made
// it. The caller frees it.
static char *tidy_path(const char *text, bool in_archive)
{
    char *utf8 = decode_name(text), *path;
    size_t length = 0;
    uint8_t *composed = u8_normalize(UNINORM_NFC, (uint8_t *)utf8, strlen(utf8), NULL, &length);
    path = format_text("%.*s", composed ? (int)length : 0, composed ? (char *)composed : "");
    free(composed);
    free(utf8);
    for (char *at = path; *at; at++)
        *at = *at == '\\' && in_archive ? '/' : *at == '\n' || *at == '\t' ? ' ' : *at;
    char *begin = path;
    while (*begin == '/' || strncmp(begin, "./", 2) == 0)
        begin += *begin == '/' ? 1 : 2;
    memmove(path, begin, strlen(begin) + 1);
    return path;
}

// ---- What was found.

static void add_file(const Reader *reader, const char *path, long long time, char *bytes,
                     size_t size)
{
    Uploads *all = reader->uploads;
    all->files = enlarge(all->files, (size_t)all->count + 1, sizeof *all->files);
    all->files[all->count++] = (Upload){format_text("%s", path), time, size, bytes};
}

static void add_obstacle(const Reader *reader, const char *path, bool unread, const char *why)
{
    Uploads *all = reader->uploads;
    all->obstacles =
        enlarge(all->obstacles, (size_t)all->obstacle_count + 1, sizeof *all->obstacles);
    all->obstacles[all->obstacle_count++] =
        (Obstacle){format_text("%s", path), format_text("%s", why), unread};
}

static void read_archive(Reader reader, const char *file, const char *bytes, size_t size,
                         const char *path);

// What is done with a file of this name: it is opened, kept, or only listed.
typedef enum { LISTED, KEPT, OPENED, REFUSED } Use;

static Use use_of(const Reader *reader, const char *path)
{
    const char *name = last_part(path);
    if (never_opened(name))
        return REFUSED;
    if (is_archive(name) || is_compressed(name))
        return reader->depth < MAX_DEPTH ? OPENED : REFUSED;
    return reader->is_wanted(name) ? KEPT : LISTED;
}

// ---- Archives.

static bool is_endless(const ArchiveProgress *progress)
{
    return progress->done > MAX_UNPACKED || seconds_now() > progress->end;
}

// The first `limit` bytes of the entry. NULL: it cannot be read, or takes too long.
static char *read_entry(struct archive *archive, size_t limit, size_t *size,
                        ArchiveProgress *progress)
{
    char *bytes = allocate(1, 1);
    const void *block;
    size_t length;
    la_int64_t offset;
    *size = 0;
    for (int status;
         (status = archive_read_data_block(archive, &block, &length, &offset)) != ARCHIVE_EOF;) {
        progress->done += (long long)length;
        if (status != ARCHIVE_OK) { // a wrong checksum is only a warning
            free(bytes);
            return NULL;
        }
        size_t room = *size < limit ? limit - *size : 0, part = length < room ? length : room;
        bytes = enlarge(bytes, *size + part + 1, 1);
        memcpy(bytes + *size, block, part);
        *size += part;
        if (*size == limit)
            break;
        if (is_endless(progress)) {
            free(bytes);
            return NULL;
        }
    }
    return bytes;
}

// Does libarchive unpack the entries that it skips? (In a tar, and in a zip that has its list of
// entries, it seeks.)
static bool skipping_unpacks(struct archive *archive, bool ended)
{
    int format = archive_format(archive);
    return archive_filter_code(archive, 0) != ARCHIVE_FILTER_NONE ||
           format == ARCHIVE_FORMAT_7ZIP || (format == ARCHIVE_FORMAT_ZIP && !ended);
}

// Reads what was not read of the entry, within the limits. What is skipped in an archive of all
// submissions does not count.
static void skip_rest(struct archive *archive, int depth, ArchiveProgress *progress)
{
    const void *block;
    size_t length;
    la_int64_t offset;
    while (!is_endless(progress) &&
           archive_read_data_block(archive, &block, &length, &offset) == ARCHIVE_OK)
        if (depth > 0)
            progress->done += (long long)length;
}

static void take_entry(const Reader *reader, struct archive *archive, struct archive_entry *entry,
                       const char *path, ArchiveProgress *progress)
{
    Use use = use_of(reader, path);
    long long time = archive_entry_mtime(entry);
    time = time > FIRST_TIME ? time : 0;
    if (use == REFUSED) {
        const char *why = never_opened(last_part(path));
        add_obstacle(reader, path, true, why ? why : "archives in archives, too deep to look into");
        return;
    }
    if (use == LISTED) {
        add_file(reader, path, time, NULL, 0);
        return;
    }
    if (archive_entry_is_encrypted(entry)) {
        add_obstacle(reader, path, true, "locked by a password");
        return;
    }
    size_t limit = use == KEPT ? MAX_SOURCE + 1 : MAX_ARCHIVE, size;
    char *bytes = read_entry(archive, limit, &size, progress);
    if (!bytes) {
        add_obstacle(reader, path, true,
                     is_endless(progress) ? too_large
                                          : "the archive is cut short or damaged there");
        return;
    }
    if (use == KEPT) {
        add_file(reader, path, time, bytes, size);
        return;
    }
    if (size == limit)
        add_obstacle(reader, path, true,
                     "an archive of more than 64 MB in another, which is not opened");
    else {
        Reader inner = *reader;
        inner.depth++;
        double begin = seconds_now();
        read_archive(inner, NULL, bytes, size, path);
        if (reader->depth == 0) // a student's archive takes no time of the others'
            progress->end += seconds_now() - begin;
    }
    free(bytes);
}

// Why libarchive cannot go on, in words for a class's table. The caller frees it.
static char *why_not(struct archive *archive, bool at_first)
{
    const char *said = archive_error_string(archive);
    // (Where no format was recognized, libarchive 3.6 must not be asked for encrypted entries.)
    if (at_first && said && strcasestr(said, "unrecognized"))
        return format_text("it is no archive, whatever its name says");
    if (archive_read_has_encrypted_entries(archive) > 0)
        return format_text("locked by a password");
    return format_text("the archive is cut short or damaged");
}

// False for a zip without its last record (APPNOTE.TXT, 4.3.16): libarchive reads it to where it
// was cut, and says nothing.
static bool has_end(const char *file, const char *bytes, size_t size)
{
    enum { RECORD = 22, COMMENT = 65535 };
    char tail[RECORD + COMMENT];
    if (!bytes) {
        int zip = open(file, O_RDONLY | O_CLOEXEC);
        off_t length = zip < 0 ? 0 : lseek(zip, 0, SEEK_END),
              begin = length > (off_t)sizeof tail ? length - (off_t)sizeof tail : 0;
        ssize_t count = zip < 0 ? 0 : pread(zip, tail, sizeof tail, begin);
        if (zip >= 0)
            close(zip);
        bytes = tail;
        size = count > 0 ? (size_t)count : 0;
    }
    // Its last two bytes say how long the comment is that ends the file: an archive in this one has
    // such a record as well.
    for (size_t back = RECORD; back <= size && back <= sizeof tail; back++) {
        const unsigned char *at = (const unsigned char *)bytes + size - back;
        if (memcmp(at, "PK\5\6", 4) == 0 && (at[20] | at[21] << 8) == (int)back - RECORD)
            return true;
    }
    return false;
}

static struct archive *open_archive(const char *file, const char *bytes, size_t size,
                                    bool compressed, bool ended, int *status)
{
    struct archive *archive = archive_read_new();
    CHECK(archive);
    archive_read_support_filter_all(archive);
    if (compressed)
        archive_read_support_format_raw(archive);
    else {
        if (ended)
            archive_read_support_format_zip(archive);
        else
            archive_read_support_format_zip_streamable(archive);
        archive_read_support_format_tar(archive);
        archive_read_support_format_gnutar(archive);
        archive_read_support_format_7zip(archive);
        archive_read_support_format_empty(archive);
    }
    *status = bytes ? archive_read_open_memory(archive, bytes, size)
                    : archive_read_open_filename(archive, file, 1 << 16);
    return archive;
}

static const char *name_of_entry(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    if (!name)
        name = archive_entry_pathname_utf8(entry);
    return name ? name : "";
}

// In `file`, or in `size` bytes of memory.
static void read_archive(Reader reader, const char *file, const char *bytes, size_t size,
                         const char *path)
{
    int status, entries = 0;
    bool compressed = is_compressed(path), ended = has_end(file, bytes, size);
    struct archive *archive = open_archive(file, bytes, size, compressed, ended, &status);
    struct archive_entry *entry;
    ArchiveProgress progress = {.end = seconds_now() + MAX_SECONDS};
    bool endless = false, unread;
    int obstacles = reader.uploads->obstacle_count;
    while (status == ARCHIVE_OK && !endless &&
           ((status = archive_read_next_header(archive, &entry)) == ARCHIVE_OK ||
            status == ARCHIVE_WARN)) {
        status = ARCHIVE_OK;
        char *inner = tidy_path(name_of_entry(entry), true),
             *whole = format_text("%s/%s", path, inner);
        if (compressed) { // ring.c.gz: its one entry has no name
            free(whole);
            whole = format_text("%.*s", (int)(strrchr(path, '.') - path), path);
        }
        entries++;
        if (archive_entry_filetype(entry) == AE_IFREG && *inner && !is_litter(inner))
            take_entry(&reader, archive, entry, whole, &progress);
        free(inner);
        free(whole);
        if (skipping_unpacks(archive, ended))
            skip_rest(archive, reader.depth, &progress);
        endless = entries > MAX_ENTRIES || is_endless(&progress);
    }
    char *why = NULL;
    unread = endless || status != ARCHIVE_EOF;
    if (endless)
        why = format_text("%s", too_large);
    else if (status != ARCHIVE_EOF && (!*path || reader.uploads->obstacle_count == obstacles))
        why = why_not(archive, entries == 0);
    else if (entries == 0)
        why = format_text("an empty archive");
    else if (archive_format(archive) == ARCHIVE_FORMAT_ZIP && !ended) {
        why = format_text("the archive is cut short or damaged");
        unread = true;
    }
    if (why)
        add_obstacle(&reader, path, unread, why);
    free(why);
    archive_read_free(archive);
}

// ---- Folders.

static char *read_regular(const char *path, size_t *size)
{
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    char *bytes = allocate(MAX_SOURCE + 2, 1);
    *size = 0;
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        free(bytes);
        bytes = NULL;
    }
    for (ssize_t count; bytes && (count = read(file, bytes + *size, MAX_SOURCE + 1 - *size)) > 0;)
        *size += (size_t)count;
    if (file >= 0)
        close(file);
    return bytes;
}

static void take_file(const Reader *reader, const char *file, const char *path, long long time)
{
    switch (use_of(reader, path)) {
    case REFUSED:
        add_obstacle(reader, path, true, never_opened(last_part(path)));
        break;
    case LISTED:
        add_file(reader, path, time, NULL, 0);
        break;
    case OPENED:
        if (access(file, R_OK) != 0)
            add_obstacle(reader, path, true, strerror(errno));
        else {
            Reader inner = *reader;
            inner.depth++;
            read_archive(inner, file, NULL, 0, path);
        }
        break;
    case KEPT: {
        size_t size;
        char *bytes = read_regular(file, &size);
        if (bytes)
            add_file(reader, path, time, bytes, size);
        else
            add_obstacle(reader, path, true, strerror(errno));
    }
    }
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void read_folder(const Reader *reader, const char *folder, const char *name)
{
    char *const roots[] = {(char *)(uintptr_t)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR | FTS_XDEV, by_name);
    if (!walk)
        die("cannot read %s: %s", folder, strerror(errno));
    for (FTSENT *entry; (entry = fts_read(walk));) {
        const char *inside = entry->fts_path + strlen(folder);
        char *tidy = tidy_path(inside, false),
             *path = format_text("%s%s%s", name, *name && *tidy ? "/" : "", tidy);
        if (entry->fts_info == FTS_D && entry->fts_level > 0) {
            char *below = format_text("%s/", tidy);
            if (is_litter(below))
                fts_set(walk, entry, FTS_SKIP);
            entry->fts_number = reader->uploads->count + reader->uploads->obstacle_count;
            free(below);
        } else if (entry->fts_info == FTS_DP && entry->fts_level > 0 &&
                   entry->fts_number == reader->uploads->count + reader->uploads->obstacle_count) {
            char *empty = format_text("%s/", path);
            add_obstacle(reader, empty, false, "an empty folder");
            free(empty);
        } else if (entry->fts_info == FTS_F && !is_litter(tidy))
            take_file(reader, entry->fts_accpath, path, entry->fts_statp->st_mtime);
        else if (entry->fts_info == FTS_DEFAULT)
            add_obstacle(reader, path, false, "neither a file nor a folder");
        else if (entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE)
            add_obstacle(reader, path, false, "a link, which is not followed");
        else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR ||
                 entry->fts_info == FTS_NS)
            add_obstacle(reader, path, true, strerror(entry->fts_errno));
        free(tidy);
        free(path);
    }
    fts_close(walk);
}

void uploads_add(Uploads *uploads, const char *path, const char *name, Wanted *is_wanted)
{
    Reader reader = {uploads, is_wanted, *name ? 1 : 0};
    struct stat status;
    if (stat(path, &status) != 0)
        die("cannot read %s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        read_folder(&reader, path, name);
    else {
        int before = uploads->count, problems = uploads->obstacle_count;
        read_archive(reader, path, NULL, 0, name);
        // An archive of all submissions adds nothing to their paths.
        size_t skipped = *name ? 0 : 1;
        for (int i = before; i < uploads->count; i++)
            memmove(uploads->files[i].path, uploads->files[i].path + skipped,
                    strlen(uploads->files[i].path + skipped) + 1);
        for (int i = problems; i < uploads->obstacle_count && skipped; i++)
            if (uploads->obstacles[i].path[0] == '/')
                memmove(uploads->obstacles[i].path, uploads->obstacles[i].path + 1,
                        strlen(uploads->obstacles[i].path));
    }
}
