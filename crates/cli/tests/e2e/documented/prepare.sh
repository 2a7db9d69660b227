# What rows of the tables beside this call before a command is typed, or to know a word of it. Read by every script of a row, in the
# terminal's directory; $CHECKOUT is the repository.

# Until a command succeeds.
until_done() { for _ in $(seq 300); do "$@" && return 0; sleep 0.05; done; return 1; }
lists() { sandbox $1 | grep -q -- "$2"; }

# A session that waits for an answer about ~/notes/list.h, and the name of the first open question.
ask() { mkdir -p ~/notes; echo list > ~/notes/list.h; sandbox run --detach --on-unknown ask -- cat ~/notes/list.h; until_done lists questions list.h; }
question() { sandbox questions | head -1 | cut -d' ' -f1; }

# A session that sleeps, and its name.
sleeper() { sandbox run --detach -- sleep 100; until_done lists ps 'sleep 100'; }
session() { sandbox ps | grep -m1 'sleep 100' | cut -d' ' -f1; }

# The programs under test, where the build of the README would have put them.
built() { mkdir -p target/x86_64-unknown-linux-musl/release; cp -L ~/.local/bin/sandbox* target/x86_64-unknown-linux-musl/release/; }

# Claude Code after its first dialog, which ends where the model is not reached. No name server is asked.
claude_begun() {
    mkdir -p ~/.config/cofferdam; printf '[network]\nresolvers = ["127.0.0.1:9"]\n' > ~/.config/cofferdam/config.toml
    sandbox agent claude -- --version && echo '{"hasCompletedOnboarding":true,"theme":"dark"}' > ~/.local/share/cofferdam/agents/claude/.claude.json
}

# Projects: with one npm package, with one crate.
npm_project() {
    echo '{"name":"app","version":"1.0.0","dependencies":{"ms":"2.1.3"}}' > package.json
    npm install --no-audit --no-fund --silent && rm -r node_modules
}
cargo_project() { mkdir -p src; echo 'fn main() {}' > src/main.rs; printf '[package]\nname = "app"\nversion = "0.1.0"\n' > Cargo.toml; }
crate() { cargo_project; printf '[dependencies]\ncfg-if = "1"\n' >> Cargo.toml; }
program() { printf '#!/bin/sh\n%s\n' "$2" > "$1"; chmod +x "$1"; }

# The policy of the credentials guide, with the test's name server.
credential() {
    cat > ~/.config/cofferdam/config.toml <<'END'
[network]
resolvers = ["9.9.9.9:53"]
mode = "egress"
allow = ["api.example.com:443"]

[[network.credentials]]
host = "api.example.com"
variable = "EXAMPLE_TOKEN"
env = "MY_TOKEN"
END
}

# A repository that signs with a key of an agent.
signing() {
    git init -q . && git config user.name T && git config user.email t@example.org && touch first && git add first || return 1
    ssh-keygen -qt ed25519 -N '' -C t@work -f ~/key && ssh-agent -a ~/agent.sock > ~/agent.env && ssh-add -q ~/key || return 1
    mkdir -p ~/.ssh && cp ~/key.pub ~/.ssh/ && git config user.signingkey ~/.ssh/key.pub
}

# A script that tries to join another namespace.
attempt() { printf 'import ctypes\nctypes.CDLL(None).syscall(308, -1, 0)\n' > attempt.py; ! sandbox run -- python3 attempt.py; }
widens() { mkdir -p ~/out .cofferdam; printf '[files]\nwrite = ["~/out"]\n' > .cofferdam/policy.toml; }

# What the review guide shows: twelve files made and three changed.
codegen() {
    for n in 1 2 3; do echo $n > old$n; done
    echo '{"name":"app","scripts":{"codegen":"for n in $(seq 12); do echo $n > new$n; done; for n in 1 2 3; do echo x >> old$n; done"}}' > package.json
}
# An agent whose steps are those of the review guide, each with its label.
agent_with_steps() {
    mkdir -p src; echo 'listen(3000)' > src/server.js; git init -q .
    cat > ~/agent <<'END'
step() { eval "$2"; echo "$1" > "$COFFERDAM_CHECKPOINT"; sleep 1; }
step 'sed -i s/3000/8080/ src/server.js' 'sed -i s/3000/8080/ src/server.js'
step 'git hook' 'echo x > .git/hooks/pre-commit'
step 'editor' 'mkdir .vscode; echo {} > .vscode/tasks.json; echo {} > .mcp.json'
step 'rm -rf src' 'rm -rf src'
sleep 100
END
    sandbox run --detach --transaction --ro ~/agent -- bash ~/agent
    until_done lists 'checkpoint --list' 'rm -rf'
}
