#!/bin/sh
# Usage: update.sh    takes what the course has released since (make update)
#
# In a clone of the course's repository; a folder that came as an archive becomes one by FROM=URL, once. What only the
# course has changed is taken; where both changed a file, other lines are merged, and where the same lines, the student's
# stay, which a line says. A file that the student has deleted comes back; one that stands where the course has a new one
# is kept under another name. What the student has not committed is committed first, so that nothing is ever lost: git log
# shows it.

set -u
export LC_ALL=C GIT_MERGE_AUTOEDIT=no

goal="make update"
. common/scripts/folders.sh

# In the foreground, where git may ask for a name and a password.
fetch() { timeout --foreground 300 git fetch --quiet origin; }

# Removes a repository that make_clone has begun, and not ended.
remove_part() { [ ! -e .git/of-make-update ] || [ -n "$(git --git-dir=.git for-each-ref refs/heads 2>/dev/null)" ] || rm -rf .git; }

# What an archive has left becomes a clone, at the release that differs least from it.
make_clone()
{
    trap remove_part EXIT
    trap 'exit 2' HUP INT TERM
    mkdir .git && touch .git/of-make-update && git init --quiet . || exit 2
    if ! git remote add origin "$FROM" || ! fetch || ! git rev-parse --quiet --verify origin/main >/dev/null; then
        refuse "git cannot fetch a course's releases from $FROM"
    fi
    for release in $(git rev-list origin/main); do
        git read-tree "$release" && echo "$(git diff --name-only | wc -l) $release"
    done | sort -s -n -k 1,1 | head -n 1 | cut -d ' ' -f 2 >.git/release
    git symbolic-ref HEAD refs/heads/main && git reset --quiet "$(cat .git/release)" || exit 2
    rm .git/of-make-update
    trap - EXIT HUP INT TERM
}

# same_lines FILE: in how many places both changed the same lines of it.
same_lines()
{
    git show "HEAD:$1" >"$sides/ours" && git show "$base:$1" >"$sides/base" && git show "$theirs:$1" >"$sides/theirs" || return
    git merge-file -p --quiet "$sides/ours" "$sides/base" "$sides/theirs" >/dev/null
    echo $?
}

forget_hook
remove_part
# What an older kit began for FROM, without a mark, has no branch.
if [ -n "${FROM:-}" ] && [ "$(git --git-dir=.git config remote.origin.url 2>/dev/null)" = "$FROM" ] && [ -z "$(git --git-dir=.git for-each-ref refs/heads)" ]; then
    kept=.git.mine-$(date +%Y%m%d-%H%M%S)
    mv -n -T .git "$kept" && echo "make update: your .git, which has no branch, is now $kept"
fi
if [ -n "${FROM:-}" ] && [ ! -e .git ]; then
    make_clone
fi
use_git "make update FROM=URL makes it one, with the address of the course's repository"
[ -z "$(git ls-files --unmerged)" ] || refuse "a merge is under way here; end it first (git merge --abort)"
git remote get-url origin >/dev/null 2>&1 || refuse "this repository has no origin to take anything from"
fetch || refuse "git fetch failed: is the course's repository to be reached?"
theirs=$(git rev-parse --verify --quiet origin/HEAD || git rev-parse --verify --quiet origin/main) || refuse "origin has no branch main"
ours() { git -c user.name=student -c user.email=student@localhost -c core.hooksPath=/dev/null -c commit.gpgsign=false -c merge.ff=true "$@"; }
base=$(git merge-base HEAD "$theirs") || refuse "this is no clone of the course's repository: the two have no commit in common"

# Files of the course that are not here come back.
git ls-files --deleted -z | xargs -0 -r git checkout --quiet -- || refuse "git checkout failed"
names() { tr '\0' '\n'; } # of git's -z, without which it quotes names
in_git() { [ -n "$(git --literal-pathspecs ls-files -- "$1")" ]; }
# Is it the student's alone, and not the same as the course's?
is_own() { ! git cat-file -e "$base:$1" 2>/dev/null && [ "$(git hash-object -- "$1" 2>/dev/null)" != "$(git rev-parse "$theirs:$1" 2>/dev/null)" ]; }
# What the student made where the course has a new file now, whether git knows it or not.
for from in HEAD "$base"; do
    git diff -z --no-renames --name-only --diff-filter=A "$from" "$theirs"
done | names | while IFS= read -r path; do
    # It, or a file where it has a folder.
    while [ ! -e "$path" ] && [ "$path" != "${path%/*}" ]; do
        path=${path%/*}
        [ ! -d "$path" ] || continue 2
    done
    [ -e "$path" ] || continue
    kept=$path.mine-$(date +%Y%m%d-%H%M%S)
    if ! in_git "$path"; then
        mv -n -T -- "$path" "$kept" && echo "make update: your $path is now $kept"
    elif is_own "$path"; then
        mv -n -T -- "$path" "$kept" && echo "make update: your $path is now $kept" &&
            git --literal-pathspecs rm -r -f --cached --quiet -- "$path" && git --literal-pathspecs add -f -- "$kept"
    fi
done
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    ours commit --quiet --all --message "Before make update" || refuse "git commit failed"
fi
before=$(git rev-parse HEAD)
sides=$(mktemp -d) || exit 2
trap 'rm -rf "$sides"' EXIT
git diff -z --name-only --diff-filter=M "$base" HEAD | names | while IFS= read -r path; do
    [ -z "$(git --literal-pathspecs diff --name-only --diff-filter=M "$base" "$theirs" -- "$path")" ] || echo "$(same_lines "$path") $path"
done >"$sides/same"
ours merge --quiet --strategy-option=ours --message "make update" "$theirs" >/dev/null 2>&1 || {
    # A file that one side deleted and the other changed: the changed one stays.
    git diff -z --name-only --diff-filter=U | names | while IFS= read -r path; do
        git checkout --quiet --ours -- "$path" 2>/dev/null || git checkout --quiet --theirs -- "$path"
        git add -- "$path"
    done
    ours commit --quiet --no-edit || {
        git merge --abort
        refuse "git merge failed, and was undone; your files are as the last commit has them"
    }
}
# What the student has deleted, and committed so, comes back, too.
git ls-tree -r -z --name-only "$theirs" | names | while IFS= read -r path; do
    [ -e "$path" ] || [ -L "$path" ] || git --literal-pathspecs checkout --quiet "$theirs" -- "$path"
done
git diff --cached --quiet || ours commit --quiet --message "make update: deleted files come back"
if [ "$(git rev-parse HEAD)" = "$before" ]; then
    echo "make update: nothing new"
else
    git diff --stat=80 "$before" HEAD
    while read -r places path; do
        [ "$places" -eq 0 ] || echo "make update: $path: in $places place$([ "$places" -eq 1 ] || echo s) yours stays, and what the course has changed" \
            "there did not come in: git diff $(git rev-parse --short "$theirs") -- $path"
    done <"$sides/same"
fi
