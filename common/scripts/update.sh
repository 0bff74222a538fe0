#!/bin/sh
# Usage: update.sh    takes what the course has released since (make update)
#
# In a clone of the course's repository. What only the course has changed is taken; where both changed a file, other lines
# are merged, and where the same lines, the student's stay. A file that the student has deleted comes back; one that
# stands where the course has a new one is kept under another name. What the student has not committed is committed first,
# so that nothing is ever lost: git log shows it.

set -u
export LC_ALL=C GIT_MERGE_AUTOEDIT=no

goal="make update"
. common/scripts/folders.sh
use_git "clone the course's, and copy your steps/ into it"
[ -z "$(git ls-files --unmerged)" ] || refuse "a merge is under way here; end it first (git merge --abort)"
git remote get-url origin >/dev/null 2>&1 || refuse "this repository has no origin to take anything from"
timeout 300 git fetch --quiet origin || refuse "git fetch failed: is the course's repository to be reached?"
theirs=$(git rev-parse --verify --quiet origin/HEAD || git rev-parse --verify --quiet origin/main) || refuse "origin has no branch main"
ours() { git -c user.name=student -c user.email=student@localhost -c core.hooksPath=/dev/null -c commit.gpgsign=false -c merge.ff=true "$@"; }

# Files of the course that are not here come back.
git ls-files --deleted -z | xargs -0 -r git checkout --quiet -- || refuse "git checkout failed"
# What the student made where the course has a new file now.
names() { tr '\0' '\n'; } # of git's -z, without which it quotes names
git diff -z --name-only --diff-filter=A HEAD "$theirs" | names | while IFS= read -r path; do
    # It, or a file where it has a folder.
    while [ ! -e "$path" ] && [ "$path" != "${path%/*}" ]; do
        path=${path%/*}
        [ ! -d "$path" ] || continue 2
    done
    if [ -e "$path" ] && [ -z "$(git --literal-pathspecs ls-files -- "$path")" ]; then
        kept=$path.mine-$(date +%Y%m%d-%H%M%S)
        mv -n -T -- "$path" "$kept" && echo "make update: your $path is now $kept"
    fi
done
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    ours commit --quiet --all --message "Before make update" || refuse "git commit failed"
fi
before=$(git rev-parse HEAD)
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
fi
