//! Rows about what host programs obey, made in a transaction: it is writable inside, and reaches the host by a word of its own only
//! (`sandbox commit --opens`). A script that copies the layer brings all of it over.

use super::transaction::{ATTACK, After, Attack, COMMITTED, last};
use crate::row::{Finding, Row, Trial, Walls};

const REPOSITORY: &str =
    "mkdir -p .git/objects .git/refs .git/hooks; echo 'ref: refs/heads/main' > .git/HEAD; echo '[core]' > .git/config";

/// Writes each name inside: none is on the host after a commit, but what is obeyed by no program is; with the word, all are.
fn each_waits(trial: &Trial, host: &str, names: &[&str]) -> Finding {
    waiting(trial, host, names).unwrap_or_else(|finding| finding)
}

fn waiting(trial: &Trial, host: &str, names: &[&str]) -> Result<Finding, Finding> {
    let write = |name: &&str| format!("mkdir -p \"$(dirname '{name}')\"; echo evil >> '{name}'");
    let inside = names.iter().map(write).collect::<Vec<_>>().join("; ") + "; echo x > plain";
    let after = After::session(trial, host, &inside)?;
    let reached = || -> Vec<&&str> {
        let has =
            |name: &&&str| std::fs::read_to_string(trial.project().join(name)).is_ok_and(|text| text.contains("evil"));
        names.iter().filter(has).collect()
    };
    let said = match trial.walls {
        Walls::Standing => after.sandbox(&["commit"])?,
        Walls::Open => after.script(ATTACK.instead)?,
    };
    let first = reached();
    if !first.is_empty() {
        return Ok(Finding::Open(format!("{first:?} on the host: {}", last(&said))));
    }
    if !trial.project().join("plain").exists() {
        return Ok(Finding::Broken(format!("nothing was committed: {}", last(&said))));
    }
    let said = after.sandbox(&["commit", "--opens"])?;
    let all = reached().len();
    if all < names.len() {
        return Ok(Finding::Broken(format!("{all} of {} with the word: {}", names.len(), last(&said))));
    }
    Ok(Finding::Contained(format!("{all} names wait for `--opens`")))
}

pub(crate) static E12: Row = Row {
    what: "git hooks and configuration, written in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| each_waits(trial, REPOSITORY, &[".git/hooks/post-commit", ".git/info/attributes", "sub/.git/config"]),
    ..COMMITTED
};

pub(crate) static E14: Row = Row {
    what: "pointers between repositories, written in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| each_waits(trial, REPOSITORY, &[".git/commondir", "sub/.git"]),
    ..COMMITTED
};

pub(crate) static E15: Row = Row {
    what: "repositories of submodules, made in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| {
        let names =
            [".git/modules/one/hooks/post-checkout", ".git/modules/one/config", ".git/modules/group/two/config"];
        each_waits(trial, REPOSITORY, &names)
    },
    ..COMMITTED
};

pub(crate) static E16: Row = Row {
    what: "hooks, servers and tasks of agents and editors, written in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| {
        let names = [
            ".claude/settings.json",
            ".mcp.json",
            ".cursor/mcp.json",
            ".codex/config.toml",
            ".gemini/settings.json",
            ".vscode/tasks.json",
            ".husky/pre-commit",
        ];
        each_waits(trial, "mkdir .vscode; echo {} > .vscode/tasks.json", &names)
    },
    ..COMMITTED
};

pub(crate) static E19: Row = Row {
    what: "other spellings of names that hosts obey, in a transaction",
    control: "compared without case",
    run: |trial| {
        each_waits(
            trial,
            "true",
            &[".GIT/hooks/post-commit", ".Git/config", ".CLAUDE/settings.json", ".VSCode/tasks.json"],
        )
    },
    ..COMMITTED
};

pub(crate) static E23: Row = Row {
    what: "bounds of a search used up by 700 repositories, in a transaction",
    control: "every changed name is compared by itself",
    run: |trial| {
        let attack = Attack {
            inside: "i=0; while [ $i -lt 700 ]; do mkdir -p s$i/.git/refs s$i/.git/objects; echo x > s$i/.git/HEAD; echo evil > s$i/.git/config; i=$((i+1)); done; \
                     mkdir -p zz/.git/hooks; echo evil > zz/.git/hooks/post-commit; mkdir -p z/.vscode; echo evil > z/.vscode/tasks.json; echo x > plain",
            look: "[ -f plain ] && [ ! -e s0/.git/config ] && [ ! -e s699/.git/config ] && [ ! -e zz/.git/hooks/post-commit ] && [ ! -e z/.vscode/tasks.json ]",
            ..ATTACK
        };
        attack.run(trial)
    },
    ..COMMITTED
};

pub(crate) static E24: Row = Row {
    what: "configuration of a worktree, a rebase that executes, made in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| each_waits(trial, REPOSITORY, &[".git/config.worktree", ".git/rebase-merge/git-rebase-todo"]),
    ..COMMITTED
};

pub(crate) static E27: Row = Row {
    what: "names that hosts obey at any depth, made in a transaction",
    control: "class `opens` needs a word of its own",
    run: |trial| {
        let names = [
            "sub/.vscode/tasks.json",
            "sub/.mcp.json",
            "a/b/.claude/settings.json",
            "b/.cargo/config.toml",
            ".hg/hgrc",
            ".mise.toml",
            "crush.json",
            "any.code-workspace",
        ];
        each_waits(trial, "true", &names)
    },
    ..COMMITTED
};

/// Rows in which the host's git must run nothing.
fn git_runs_nothing(trial: &Trial, host: &'static str, inside: &'static str) -> Finding {
    let is_there = std::process::Command::new("git").arg("--version").output().is_ok_and(|said| said.status.success());
    if !is_there {
        return Finding::Skipped("git is not there".to_owned());
    }
    let look = "echo x > change; git status >/dev/null 2>&1; git -c color.ui=always log -1 >/dev/null 2>&1; git add change >/dev/null 2>&1; \
                [ ! -e ../ran ] && [ ! -e ran ] || { echo 'the host ran it'; false; }";
    Attack { host, inside, look, ..ATTACK }.run(trial)
}

pub(crate) static E13: Row = Row {
    what: "fsmonitor, filters and includes of a repository, set in a transaction",
    control: "no command of the sandbox runs git, and the configuration waits",
    run: |trial| {
        let inside = "git init -q; git config core.fsmonitor 'touch ../ran; touch ran'; git config filter.x.clean 'sh -c \"touch ran; cat\"'; \
                      echo '* filter=x' > .gitattributes; echo x > plain";
        git_runs_nothing(trial, "true", inside)
    },
    ..COMMITTED
};

pub(crate) static E22: Row = Row {
    what: "a bare repository at the project's root, made in a transaction",
    control: "what would make the project a repository waits",
    run: |trial| {
        let inside = "mkdir -p objects refs/heads; echo 'ref: refs/heads/main' > HEAD; \
                      printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = .\\nfsmonitor = \"touch ../ran; touch ran\"\\n' > config; \
                      echo x > plain";
        git_runs_nothing(trial, "true", inside)
    },
    ..COMMITTED
};

pub(crate) static E17: Row = Row {
    what: "what the host will execute, in the diff",
    control: "a class of its own for each, shown apart; what is obeyed on opening is approved apart",
    run: |trial| shown_apart(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

/// Obeyed on opening, and when it is run.
const EXECUTED: [(&str, &str); 3] =
    [(".vscode/tasks.json", "opens"), ("package.json", "runs"), (".github/workflows/ci.yml", "runs")];

fn shown_apart(trial: &Trial) -> Result<Finding, Finding> {
    let write = |(name, _): &(&str, &str)| format!("mkdir -p $(dirname {name}); echo x > {name}");
    let inside = EXECUTED.iter().map(write).collect::<Vec<_>>().join("; ") + "; echo x > notes.txt";
    let after = After::session(trial, "true", &inside)?;
    let classes: Vec<(String, String)> = match trial.walls {
        Walls::Standing => {
            let said = after.sandbox(&["diff", "--json"])?;
            let value: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
            let changes = value["trees"][0]["changes"].as_array().cloned().unwrap_or_default();
            let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            changes.iter().map(|change| (words(&change["path"]), words(&change["class"]))).collect()
        }
        Walls::Open => {
            let said = after.script("cd \"$UPPER\" && find . -type f")?;
            let names = super::transaction::text(&said.stdout);
            names.lines().map(|name| (name.trim_start_matches("./").to_owned(), String::new())).collect()
        }
    };
    let class = |name: &str| classes.iter().find(|(path, _)| path == name).map(|(_, class)| class.as_str());
    if class("notes.txt") != Some("") {
        return Ok(Finding::Broken(format!("{classes:?}")));
    }
    let plain = EXECUTED.iter().find(|(name, wanted)| class(name) != Some(wanted));
    Ok(match plain {
        Some((name, _)) => Finding::Open(format!("{name} is a change like any other: {classes:?}")),
        None => Finding::Contained(format!("{} names have their class", EXECUTED.len())),
    })
}

/// Samples, a file that git has as it is, and one that differs from what git has.
const TRACKED: &str = ".env.example .env.test .env .env.local";

pub(crate) static E26: Row = Row {
    what: "a commit of git inside a transaction that empties or drops hidden files",
    control: "hidden names stand outside the layer, so that git cannot add them and no commit takes them",
    run: |trial| hidden_stays(trial).unwrap_or_else(|finding| finding),
    ..COMMITTED
};

fn hidden_stays(trial: &Trial) -> Result<Finding, Finding> {
    let host = format!(
        "for f in {TRACKED}; do echo KEY=committed > $f; done; git init -q && git add -A -f && \
         git -c user.name=t -c user.email=t commit -q -m first && git ls-tree HEAD -- {TRACKED} > \"$OUT/before\" && \
         echo KEY=secret > .env.local; echo x > new"
    );
    let inside =
        "git add -A || git add new; git -c user.name=t -c user.email=t commit -q -m inside; rm -f .env.local || true";
    let after = After::session(trial, &host, inside)?;
    let said = match trial.walls {
        Walls::Standing => after.sandbox(&["commit"])?,
        // A tool that makes the project what the workload saw: what was hidden was not there.
        Walls::Open => {
            after.script("cp -a \"$UPPER/.\" .; for f in .env .env.local; do [ -f \"$UPPER/$f\" ] || rm -f $f; done")?
        }
    };
    let look = format!(
        "[ \"$(git log -1 --format=%s)\" = inside ] || exit 9; git ls-tree HEAD -- {TRACKED} | cmp - \"$OUT/before\" && \
         grep -qx KEY=secret .env.local && grep -qx KEY=committed .env && git fsck --strict 2>/dev/null"
    );
    let looked = after.script(&look)?;
    Ok(match looked.status.code() {
        Some(0) => {
            Finding::Contained("the commit has every tracked file as it was, and the project its own".to_owned())
        }
        Some(9) => Finding::Broken(format!("no commit inside: {}", last(&said))),
        _ => Finding::Open(format!("hidden files changed: {}", last(&looked))),
    })
}
