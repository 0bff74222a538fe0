// Facts about Moodle and Canvas; each is named with its source.

#include "class/platforms.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/format.h"

// "_123" in front of `end`: where it begins; NULL: no number stands there.
static const char *number_before(const char *begin, const char *end)
{
    const char *at = end;
    while (at > begin && isdigit((unsigned char)at[-1]))
        at--;
    return at < end && at > begin && at[-1] == '_' ? at - 1 : NULL;
}

static void set_parts(PlatformName *parts, const char *name, const char *name_end,
                      const char *number, const char *number_end)
{
    static char student[512], digits[64];
    snprintf(student, sizeof student, "%.*s", (int)(name_end - name), name);
    snprintf(digits, sizeof digits, "%.*s", (int)(number_end - number), number);
    *parts = (PlatformName){.name = student, .number = digits};
}

// mod/assign/classes/downloader.php (Moodle 4.1 to 5.1), mod/assign/locallib.php (before): the full
// name, in which _ has become a blank, _, the number of the worksheet's Identifier,
// _assignsubmission_, the plugin (file, onlinetext); then a folder, in versions before 4.1 with
// another _; or, where nothing is downloaded in folders, _ and the file's name. Of a team: its name
// and the group's number.
bool moodle_name_parts(const char *name, PlatformName *parts)
{
    static const char plugin[] = "_assignsubmission_";
    const char *at = strstr(name, plugin), *number = at ? number_before(name, at) : NULL;
    if (!number)
        return false;
    set_parts(parts, name, number, number + 1, at);
    at += sizeof plugin - 1;
    at += strcspn(at, "_");
    parts->rest = at + (*at == '_');
    return true;
}

// lib/content_zipper.rb (canvas-lms): the sortable name in small letters, of which letters, digits
// and _ are left but for _ around a number; _LATE; _, the user's number, _, the attachment's, _,
// the file's name. Of an anonymous student: anon_ID, and no user's number.
bool canvas_name_parts(const char *name, PlatformName *parts)
{
    bool late = strncmp(name, "LATE_anon_", 10) == 0;
    const char *anonymous = late ? name + 5 : name;
    if (strncmp(anonymous, "anon_", 5) == 0) {
        const char *end = anonymous + 5 + strcspn(anonymous + 5, "_"),
                   *number = end + (strncmp(end, "_LATE_", 6) == 0 ? 5 : 0);
        const char *rest = *number == '_' ? number + 1 + strspn(number + 1, "0123456789") : number;
        if (*rest != '_' || rest == number + 1)
            return false;
        set_parts(parts, "", "", anonymous, end);
        parts->late = late || number != end;
        parts->rest = rest + 1;
        return true;
    }
    for (const char *at = strchr(name, '_'); at; at = strchr(at + 1, '_')) {
        const char *second = at + 1 + strspn(at + 1, "0123456789"), *rest;
        if (second == at + 1 || *second != '_' || at == name)
            continue;
        rest = second + 1 + strspn(second + 1, "0123456789");
        if (rest == second + 1 || *rest != '_' || !rest[1])
            continue;
        late = at - name > 5 && strncasecmp(at - 5, "_LATE", 5) == 0;
        set_parts(parts, name, late ? at - 5 : at, at + 1, second);
        parts->late = late;
        parts->rest = rest + 1;
        return true;
    }
    // A text or a link in the place of a file has no number of its own.
    const char *end = strrchr(name, '_'), *number = end ? number_before(name, end) : NULL;
    if (!number || (strcmp(end, "_text.html") != 0 && strcmp(end, "_link.html") != 0))
        return false;
    set_parts(parts, name, number, number + 1, end);
    parts->rest = end + 1;
    return true;
}

// As tools for instructors read it (kwurst/bb-file-cleanup): the title, which may hold _, the user,
// the attempt, its time, the file.
static bool blackboard_name_parts(const char *name, PlatformName *parts)
{
    static const char attempt[] = "_attempt_";
    const char *at = strstr(name, attempt), *user = at;
    if (!at)
        return false;
    while (user > name && user[-1] != '_')
        user--;
    const char *time = at + sizeof attempt - 1, *rest = time + strspn(time, "0123456789-");
    if (user == name || user == at || rest == time || *rest != '_')
        return false;
    set_parts(parts, "", "", user, at);
    parts->rest = rest + 1;
    return true;
}

bool file_name_parts(const char *name, PlatformName *parts)
{
    return moodle_name_parts(name, parts) || canvas_name_parts(name, parts) ||
           blackboard_name_parts(name, parts);
}

// mod/assign/feedback/file/importziplib.php: any part of a path "x_NUMBER_assignsubmission_file",
// in which x has no _.
char *moodle_feedback_name(const char *name, const char *number, const char *file)
{
    char *path = format_text("%s_%s_assignsubmission_file_/%s", name, number, file);
    for (char *at = path; at < path + strlen(name); at++)
        *at = strchr("_/\\", *at) ? ' ' : *at;
    return path;
}

const char *moodle_participant(const char *cell)
{
    const char *digits = cell + strlen(cell);
    while (digits > cell && isdigit((unsigned char)digits[-1]))
        digits--;
    return digits;
}

// Headings of mod/assign/gradingtable.php, as the language packs of Moodle 3.1 to 4.5 have them:
// English, German, French, Spanish, Chinese.
const char *const moodle_identifier[] = {"Identifier", "ID",     "Identifiant", "Identificador",
                                         "标识符",     "识别码", NULL};
const char *const moodle_name[] = {
    "Full name", "Vollständiger Name", "Nom complet", "Nombre completo", "全名", NULL};
const char *const moodle_email[] = {"Email address",
                                    "E-Mail-Adresse",
                                    "Adresse de courriel",
                                    "Dirección de correo",
                                    "电子邮件地址",
                                    "Email地址",
                                    NULL};
const char *const moodle_number[] = {"ID number",    "ID-Nummer", "Numéro d’identification",
                                     "Número de ID", "学号",      NULL};
const char *const moodle_user[] = {"Username",          "Anmeldename", "Nom d’utilisateur",
                                   "Nombre de usuario", "用户名",      NULL};
const char *const moodle_grade[] = {"Grade", "Bewertung", "Note", "Calificación", "成绩", NULL};
const char *const moodle_maximum[] = {
    "Maximum grade", "Bestwertung", "Note maximale", "Calificación máxima", "最高分",
    "最高成绩",      NULL};
const char *const moodle_feedback[] = {"Feedback comments",
                                       "Feedback als Kommentar",
                                       "Feedback par commentaires",
                                       "Comentarios de retroalimentación",
                                       "反馈意见",
                                       "评语反馈",
                                       NULL};
// lib/gradebook_exporter.rb (canvas-lms).
const char *const canvas_id[] = {"ID", NULL};
const char *const canvas_student[] = {"Student", NULL};
const char *const canvas_user[] = {"SIS User ID", NULL};
const char *const canvas_login[] = {"SIS Login ID", NULL};
