//! Lines of the files that are masked, as their programs write them.

use super::configuration::{Inside, masked_line};
use super::names::may_hold_secret;
use super::*;

fn shown(text: &str) -> String {
    masked(text).unwrap_or_else(|| text.to_owned())
}

#[test]
fn public_keys_paths_and_names_of_ssh_are_kept() {
    for text in [
        "\tsigningkey = ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0jK7Yx5QeT2vD8mUuZPqWc1f3hG6sN4bXoLrEa9kVt t@t.test\n",
        "\turl = ssh://git@host.example:2222/srv/team/project.git\n",
        "\thooksPath = /nix/store/0q5y9l3v1m8k2x7c4b6n0a9s8d7f6g5h-hooks/share\n",
    ] {
        assert_eq!(shown(text), text);
    }
    let with_password = "url = ssh://git:abc@host.example/x\n";
    assert_eq!(shown(with_password), "url = ssh://***@host.example/x\n");
}

#[test]
fn values_of_secret_names_are_masked_and_the_rest_is_kept() {
    for (text, expected) in [
        (
            "//registry.example/:_authToken=abc\nregistry=https://r.example\n",
            "//registry.example/:_authToken=***\nregistry=https://r.example\n",
        ),
        (
            "[http]\n\textraheader = Authorization: Basic abc\n[user]\n\tname = n\n",
            "[http]\n\textraheader = ***\n[user]\n\tname = n\n",
        ),
        (
            "[url \"https://u:tok@h.example/\"]\n\tinsteadOf = https://h.example/\n",
            "[url \"https://***@h.example/\"]\n\tinsteadOf = https://h.example/\n",
        ),
        (
            "[registries.mine]\nindex = \"sparse+https://h/\"\ntoken = \"Bearer abc\"\n",
            "[registries.mine]\nindex = \"sparse+https://h/\"\ntoken = \"***\"\n",
        ),
        (
            "[global]\nindex-url = https://u:p@h.example/simple\n",
            "[global]\nindex-url = https://***@h.example/simple\n",
        ),
        ("export GITHUB_TOKEN=abc\nexport EDITOR=vi\n", "export GITHUB_TOKEN=***\nexport EDITOR=vi\n"),
        ("password: abc\nuser: me\n", "password: ***\nuser: me\n"),
        ("[user]\n\tsigningkey = ABCDEF\n", "[user]\n\tsigningkey = ABCDEF\n"),
        ("alias x='curl -H \"Authorization: Bearer abc\" h'\n", "alias x='curl -H \"Authorization: ***\" h'\n"),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
    assert_eq!(masked("[user]\n\tname = n\n"), None);
    assert_eq!(masked(""), None);
}

#[test]
fn values_of_several_lines_are_masked_whole() {
    for text in [
        "token = \"\"\"\nCANARY\n\"\"\"\nname = 1\n",
        "token = [\n \"CANARY\",\n]\nname = 1\n",
        "token=a\\\nCANARY\nname = 1\n",
        "password: |\n  CANARY\n  CANARY\nname = 1\n",
        "password =\n  x\nname = 1\n",
        "export TOKEN='a\nCANARY'\nname = 1\n",
        "export TOKEN=\"a\\\"b\nCANARY \\\" CANARY\nCANARY\"\nname = 1\n",
        "export TOKEN=\"a\"'b\nCANARY'\nname = 1\n",
        "declare -x TOKEN=\"a\\\"b\nCANARY\"\nname = 1\n",
        "set -gx TOKEN \"a\\\"b\nCANARY\"\nname = 1\n",
        "_authToken \"a\\\"b\nCANARY\"\nname = 1\n",
        "setenv TOKEN a\\\nCANARY\nname = 1\n",
    ] {
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let shown = shown(&text);
            assert!(!shown.contains("CANARY"), "{text:?} -> {shown}");
            assert!(shown.contains("name = 1"), "{text:?} -> {shown}");
        }
    }
}

#[test]
fn each_file_of_the_list_is_masked_in_its_own_syntax() {
    for (text, expected) in [
        // fish
        ("set -gx GITHUB_TOKEN CANARY\n", "set -gx GITHUB_TOKEN \"***\"\n"),
        ("set -Ux GITHUB_TOKEN 'CANARY'\n", "set -Ux GITHUB_TOKEN '***'\n"),
        ("set -x -g GITHUB_TOKEN \"CANARY CANARY\"\n", "set -x -g GITHUB_TOKEN \"***\"\n"),
        ("    set --export --global TOKENS CANARY CANARY\n", "    set --export --global TOKENS \"***\"\n"),
        (
            "set -q TOKEN; or set -gx TOKEN CANARY; set -gx EDITOR vim\n",
            "set -q TOKEN; or set -gx TOKEN \"***\"; set -gx EDITOR vim\n",
        ),
        ("set -gx TOKEN (cat \\\n  CANARY)\nset -gx EDITOR vim\n", "set -gx TOKEN \"***\"\nset -gx EDITOR vim\n"),
        // csh and tcsh
        ("setenv TOKEN CANARY\n", "setenv TOKEN \"***\"\n"),
        ("set token = CANARY\n", "set token = ***\n"),
        ("set token = ( CANARY CANARY )\n", "set token = \"***\"\n"),
        ("if ( ! $?TOKEN ) setenv TOKEN 'CANARY'\n", "if ( ! $?TOKEN ) setenv TOKEN '***'\n"),
        ("alias work 'setenv TOKEN CANARY; cd w'\n", "alias work 'setenv TOKEN \"***\"; cd w'\n"),
        // bash, zsh and ksh
        ("declare -x TOKEN=\"CANARY CANARY\" A=1\n", "declare -x TOKEN=\"***\" A=1\n"),
        ("[ -f x ] && export TOKEN='a\\'CANARY CANARY'\nA=1\n", "[ -f x ] && export TOKEN='***'\nA=1\n"),
        ("export TOKEN=$'a\\'b\nCANARY'\nA=1\n", "export TOKEN='***'\nA=1\n"),
        ("export TOKEN=$(cat <<E\nCANARY\nE\n)\nA=1\n", "export TOKEN=\"***\"\nA=1\n"),
        ("alias g='TOKEN=CANARY gh; TOKEN=CANARY'\nA=1\n", "alias g='TOKEN=*** gh; TOKEN=***'\nA=1\n"),
        ("npm config set //r.example/:_authToken=CANARY\n", "npm config set //r.example/:_authToken=***\n"),
        ("npm config set //r.example/:_authToken CANARY\n", "npm config set //r.example/:_authToken \"***\"\n"),
        // yarn 1
        ("\"//r.example/:_authToken\" \"CANARY==\"\n", "\"//r.example/:_authToken\" \"***\"\n"),
        ("\"//r.example/:_password\" /CANARY==\n", "\"//r.example/:_password\" \"***\"\n"),
        ("_authToken \"CANARY\"\nusername me\n", "_authToken \"***\"\nusername me\n"),
        ("password CANARY # of work\n", "password \"***\"\n"),
        // yarn 2, conda
        (
            "npmRegistries:\n  \"//r.example\": {npmAuthToken: \"CANARY CANARY\", npmAlwaysAuth: true}\n",
            "npmRegistries:\n  \"//r.example\": {npmAuthToken: \"***\", npmAlwaysAuth: true}\n",
        ),
        ("all:\n  - token: |\n      CANARY\n  - name: x\n", "all:\n  - token: ***\n  - name: x\n"),
        // cargo, bun
        (
            "mine = { index = \"https://h/\", token = \"Bearer CANARY\" }\n",
            "mine = { index = \"https://h/\", token = \"***\" }\n",
        ),
        ("mine = {token= \"CANARY\", url = \"h\"}\n", "mine = {token= \"***\", url = \"h\"}\n"),
        // git
        ("[github] token = CANARY\n", "[github] token = ***\n"),
        ("[github] token =CANARY\n", "[github] token =***\n"),
        (
            "\turl = https://a.example/?next=https://u:CANARY@h.example/&x=1&token=CANARY\n",
            "\turl = https://a.example/?next=https://***@h.example/&x=1&token=***\n",
        ),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn ordinary_settings_are_kept() {
    for text in [
        "set -gx EDITOR vim\nset -g fish_key_bindings fish_vi_key_bindings\nset -q TOKEN; and echo yes\n",
        "set -e GITHUB_TOKEN\nset -gx PATH $HOME/.token/bin $PATH\n",
        "setenv EDITOR vim\nset path = ( /bin $path )\nunsetenv TOKEN\n",
        "set -euo pipefail\nset -- $TOKEN x\nexport TOKEN OTHER_TOKEN\nunset TOKEN\n",
        "bindkey -e\nbindkey '^R' history-incremental-search-backward\nbindkey \"^A\"\n",
        "get_token() {\n  cat x\n}\nget_token ()\n{\n}\nget_token | head\nload_secrets ~/.work\nload_secrets \"$HOME/w\"\n",
        "if [ -z \"$TOKEN\" ] || [ \"$TOKEN\" = \"\" ]; then x; fi\n",
        "registry \"https://r.example/\"\n\"@a:registry\" \"https://r.example/\"\nalways-auth true\nlastUpdateCheck 1600000000000\n",
        "[user] name = t\n[alias]\n\tlg = log --author=me --pretty=format:'%h %an'\n",
    ] {
        assert_eq!(shown(text), text);
    }
}

/// Names and forms that were once shown.
const SECRETS: &[&str] = &[
    "export DB_PASS=CANARY\n",
    "PASS=CANARY\n",
    "export PGPASS='CANARY'\n",
    "MYSQL_PW=CANARY\n",
    "mysqlPw = CANARY\n",
    "[imap]\n\tpass = CANARY\n",
    "c.pass = \"CANARY\"\n",
    "DBPASS2 = \"CANARY\"\n",
    "export CREDS=CANARY\n",
    "export GH_PAT=CANARY\n",
    "curl -H 'Authorization: token CANARY' x\n",
    "curl -H \"Authorization: Digest CANARY, CANARY\" x\n",
    "curl -H Authorization:\\ Bearer\\ CANARY x\n",
    "header = Authorization: token CANARY\n",
    "[http]\n\tproxy = user:CANARY@proxy:8080\n",
    "proxy=user:CAN,ARY@CANARY@proxy:8080\n",
    "proxy = \"user:CANARY@proxy:80\"\n",
    "export A=1 http_proxy=user:CANARY@proxy:3128\n",
    "export DSN=\"user:CANARY@tcp(db:3306)/x\"\n",
    "key=\"-----BEGIN PRIVATE KEY-----\\nCANARY/CANARY\\n-----END PRIVATE KEY-----\"\n",
    "x = '''\n-----BEGIN RSA PRIVATE KEY-----\nCANARY\nCANARY\n-----END RSA PRIVATE KEY-----\n'''\n",
    "x: |\n  -----BEGIN OPENSSH PRIVATE KEY-----\n  CANARY\n",
    "curl -u a:CANARY https://x\n",
    "curl -sSu 'a:CANARY b' https://x\n",
    "curl --user=a:CANARY https://x\n",
    "curl \\\n  -L \\\n  -u a:CANARY \\\n  https://x\n",
    "alias s='sshpass -p CANARY ssh -p 22 host'\n",
    "alias s='sshpass -pCANARY ssh host'\n",
    "alias db='mysql -u root -pCANARY db'\n",
    "docker login -u me -p CANARY registry\n",
    "read -r TOKEN <<< CANARY\n",
    "gh auth login --with-token <<< CANARY\n",
    ": \"${GITHUB_TOKEN:=CANARY CANARY}\"\n",
    "curl -d \"$key=CANARY\" x\n",
    "$password = \"CANARY\"\n",
    "tool --token &CANARY\n",
    "header = Authorization: |CANARY\n",
    "echo ${TOKEN-CANARY}\n",
];

#[test]
fn passwords_are_masked_under_short_names_in_options_and_in_addresses_without_a_scheme() {
    for text in SECRETS {
        assert!(!shown(text).contains("CANARY"), "{text} -> {}", shown(text));
        let text = text.replace('\n', "\r\n");
        assert!(!shown(&text).contains("CANARY"), "{text:?} -> {}", shown(&text));
    }
    for text in [
        "export GIT_ASKPASS=/usr/bin/ask SSH_ASKPASS=ask\n\taskPass = ask\n",
        "passthrough = yes\nbypass=1\ncompass = north\nPATH=/a/b:/c\npattern = x\n",
        "PS1='${debian_chroot:+($debian_chroot)}\\u@\\h:\\w\\$ '\n",
        "\tinsteadOf = git@gitlab.example:\n\turl = git@host.example:team/x\n\temail = a@b.example\n",
        "ssh -p 22 host\nmysql -u root -p db\nmkdir -p x; cp -a y z\ncurl -sSL https://x.example/\n",
        "image=base:1@sha256:0123\n-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n",
        "while read -r key value; do\n  echo \"$key=$value\"\ndone < f\n",
    ] {
        assert_eq!(shown(text), text);
    }
}

#[test]
fn a_shell_can_read_what_is_left_of_its_files() {
    for (text, expected) in [
        (": \"${GITHUB_TOKEN:=x}\"\n", ": \"${GITHUB_TOKEN:=***}\"\n"),
        ("(TOKEN=a)\n", "(TOKEN=***)\n"),
        ("(TOKEN=a)&&b\n", "(TOKEN=***)&&b\n"),
        ("{ TOKEN=a;}\n", "{ TOKEN=***;}\n"),
        ("x=${AUTH:=abc}; y=1\n", "x=${AUTH:=***}; y=1\n"),
        ("x=\"$(TOKEN=a cmd)\"\n", "x=\"$(TOKEN=*** cmd)\"\n"),
        ("x=`TOKEN=a`\n", "x=`TOKEN=***`\n"),
        ("[ \"$a\" = \"token=x\" ] && b\n", "[ \"$a\" = \"token=***\" ] && b\n"),
        ("f() {\n  TOKEN=a; }\n", "f() {\n  TOKEN=***; }\n"),
        ("if a; then\n  TOKEN=a; fi\n", "if a; then\n  TOKEN=***; fi\n"),
        ("echo \"\ntoken=abc\"\n", "echo \"\ntoken=***\"\n"),
        ("x='{\"token\": \"abc\"}'\n", "x='{\"token\": \"***\"}'\n"),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

/// Lines of start-up files that name secrets and are none.
const SHELL: &[&str] = &[
    "if [ -n \"$GITHUB_TOKEN\" ]; then echo a; fi\n",
    "[[ -z $API_KEY ]] && API_KEY=$(pass show api)\n",
    "case \"$token\" in a) token=b;; *) echo;; esac\n",
    "case x in\n  a) TOKEN=b;;\n  b)\n    TOKEN=c ;;\nesac\n",
    "export GPG_KEY=\"$(gpg -K | awk '/sec/{print $2}')\"\n",
    "token() { local token=$1; curl -H \"Authorization: Bearer $token\" x; }\n",
    "x=$(cat <<EOF\ntoken: abc\nEOF\n)\n",
    "declare -A tokens=([a]=b [c]=d)\n",
    "if [[ \"$KEY\" == \"a\" || \"$AUTH\" != b ]]; then :; fi\n",
    "(( tokens = 1 + 2 ))\n",
    "foo() { [ \"$auth\" = \"\" ] && { auth=1; }; }\n",
    "alias a='curl -H \"Authorization: Bearer abc\" h'\n",
    "alias b=\"curl -u 'a:b c' h\"\n",
    "for t in a; do token=$t; done\n",
    "while a; do\n  TOKEN=a; done\n",
    "$(TOKEN=a cmd)\n",
    "curl -d '{\"password\": \"abc\"}' -d \"password=a&b=c\" x\n",
    "f() ( TOKEN=a b )\n",
    "x=\"a ${TOKEN:-$(cat \"$f\")} b\"\n",
];

#[test]
fn bash_parses_masked_files_as_it_parsed_the_files() {
    let parses = |text: &str| {
        use std::io::Write as _;
        let bash = std::process::Command::new("bash").arg("-n").stdin(std::process::Stdio::piped()).spawn();
        let mut bash = bash.ok()?;
        bash.stdin.take()?.write_all(text.as_bytes()).ok()?;
        Some(bash.wait().ok()?.success())
    };
    if parses("true\n").is_none() {
        eprintln!("skipped: there is no bash");
        return;
    }
    assert_eq!(parses("(true\n"), Some(false), "the control");
    for text in SHELL.iter().chain(SECRETS).filter(|text| parses(text) == Some(true)) {
        assert_eq!(parses(&shown(text)), Some(true), "{text} -> {}", shown(text));
    }
    let all = SHELL.concat();
    assert_eq!(parses(&shown(&all)), Some(true), "{}", shown(&all));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has a clock")]
fn a_line_of_addresses_takes_time_in_proportion_and_no_stack() {
    let masks = |addresses: usize| {
        let begin = std::time::Instant::now();
        let shown = masked(&"://u@h/".repeat(addresses)).expect("there is something to mask");
        assert_eq!(shown, "://***@h/".repeat(addresses));
        begin.elapsed()
    };
    let slowest = (0..3).map(|_| masks((1 << 20) / 7 / 32)).max().expect("three");
    let fastest = (0..2).map(|_| masks((1 << 20) / 7)).min().expect("two");
    assert!(fastest < slowest * 200, "{fastest:?} for 32 times what took {slowest:?}");
}

#[test]
fn masking_ends_whatever_a_file_holds() {
    let parts = "set |-gx |setenv |TOKEN|=|\"|'|`|\"\"\"|\\|(|)|{|}| |;|,|\u{e9}|\n|$|://|@|/|Bearer |token: |#|_auth \"|- |curl |-u|${|:-|<<<|proxy|u:p@h|PASS|-----BEGIN |PRIVATE KEY-----|-----END";
    let parts: Vec<&str> = parts.split('|').collect();
    let mut number = 88_172_645_463_325_252_u64;
    let mut below = |most: usize| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        usize::try_from(number % most as u64).expect("small")
    };
    for _ in 0..20_000 {
        let length = below(14);
        let text: String = (0..length).map(|_| parts[below(parts.len())]).collect();
        masked(&text);
    }
}

#[test]
fn known_forms_of_secrets_are_masked_under_any_name() {
    for secret in ["ghp_0123456789abcdef", "npm_0123456789abcdef", "0123456789abcdef0123456789abcdef"] {
        for text in [format!("x = {secret}\n"), format!("x = \"{secret}\"\n"), format!("run {secret} y\n")] {
            assert!(!shown(&text).contains(secret), "{text}");
        }
    }
}

proptest::proptest! {
    /// Lines of pieces that rules know, cut anywhere.
    #[test]
    fn a_line_that_is_passed_by_would_be_shown_as_it_is(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "token", "TOK", "en", "Secret", "pass", "wd", "pwd", "api", "-", "_", "key", "access", "credential", "auth", "or",
                "cookie", "file", "bear", "er", "Basic", "extra", "header", "smtp", "sk-", "ghp_", "npm_", "eyJ", "AKIA", "0123456789abcdef",
                "x", "://", "@", "h.example", "=", ":", " ", "\t", ",", ";", "\"", "'", "`", "[", "(", "{", "}", "\\", "#", "$", "export ",
                "set ", "setenv ", "--", "/", ".", "\u{e4}", "curl", "mysql", "mariadb", "login", "redis-cli", "ssh", " -u", " -p", " -a",
                "pw", "PW", "creds", "Pat", "otp", "<<<", "${", ":-", ")", "u:p@h", "proxy",
            ]),
            0..14,
        ),
    ) {
        let line = pieces.concat();
        if !may_hold_secret(&line) {
            proptest::prop_assert_eq!(masked_line(&line, &mut None), (line.clone(), Inside::Nothing));
        }
    }
}
