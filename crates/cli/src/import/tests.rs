//! Each format with every key that it documents: what it means here, and that nothing is dropped in silence.

use cofferdam_policy::{Inputs, Layer, LayerInput, resolve};

use super::*;

/// The settings and the remarks of an import.
fn imported(name: &str, text: &str) -> (Vec<String>, Vec<String>) {
    let draft = import(Path::new(name), text, "auto").unwrap_or_else(|error| panic!("{name}: {error}"));
    let written = draft.to_toml();
    let layers = [LayerInput { layer: Layer::User, source: name.to_owned(), text: written.clone(), trusted: true }];
    let resolved = resolve(&Inputs { layers: &layers, ..Inputs::default() });
    assert!(resolved.is_ok(), "{resolved:?}\n{written}");
    (draft.settings.iter().map(ToString::to_string).collect(), draft.remarks)
}

#[track_caller]
fn assert_imported(name: &str, text: &str, settings: &[&str], remarks: &[&str]) {
    let (found, remarked) = imported(name, text);
    assert_eq!(found, settings, "{name}");
    let starts: Vec<&str> = remarked.iter().map(|remark| remark.split(" = ").next().unwrap_or_default()).collect();
    assert_eq!(starts, remarks, "{remarked:#?}");
}

/// Example 13 of the document about tools.
const TOOL: &str = r#"{
  "isolationLevel": "LEVEL_2",
  "filesystem": {
    "rootPath": "/var/sandbox/tool-12345", "readOnlyPaths": ["/usr", "/lib", "/lib64"],
    "readWritePaths": ["/tmp", "/var/tmp", "/srv/out"], "deniedPaths": ["/proc", "/sys", "/dev", "/srv/keys"],
    "maxFileSize": 10485760,      // 10 MB
    "maxTotalSize": 104857600,    // 100 MB
  },
  "process": { "maxProcesses": 10, "allowFork": true, "allowExec": false, "allowedExecutables": [] },
  "network": { "allowNetwork": false, "allowedHosts": [], "allowedPorts": [], "maxConnections": 0 },
  "resources": { "maxCPU": 5000, "maxMemory": 52428800, "maxFileDescriptors": 100, "maxThreads": 10 },
  "syscalls": { "mode": "WHITELIST", "syscalls": ["read", "write", "open", "exit_group", "kexec_load"] }
}"#;

#[test]
fn a_tools_json_policy_means_the_same() {
    assert_imported(
        "tool.json",
        TOOL,
        &[
            "isolation = \"full\"",
            "files.read = \"/usr\"",
            "files.read = \"/lib\"",
            "files.read = \"/lib64\"",
            "files.write = \"/srv/out\"",
            "files.deny = \"/srv/keys\"",
            "limits.file_size = \"10M\"",
            "limits.storage = \"100M\"",
            "process.max = 10",
            "process.allow_fork = true",
            "process.allow_exec = false",
            "network.mode = \"none\"",
            "limits.cpu = \"5s\"",
            "limits.memory = \"50M\"",
            "limits.open_files = 100",
            "syscalls.mode = \"allow-list\"",
        ],
        &[
            "filesystem.rootPath",
            "filesystem.readWritePaths",
            "filesystem.readWritePaths",
            "filesystem.deniedPaths",
            "filesystem.deniedPaths",
            "filesystem.deniedPaths",
            "resources.maxThreads",
            "syscalls.syscalls",
            "syscalls.mode",
        ],
    );
}

#[test]
fn a_deny_list_of_calls_and_a_network_are_told_apart() {
    let text = r#"{ "isolationLevel": "LEVEL_1", "process": { "allowedExecutables": ["git", "sh"] },
        "network": { "allowNetwork": true, "allowedHosts": ["a.example"], "allowedPorts": [443], "maxConnections": 5 },
        "syscalls": { "mode": "BLACKLIST", "syscalls": ["socket", "nosuch"] } }"#;
    assert_imported(
        "tool.json",
        text,
        &[
            "isolation = \"process\"",
            "process.executables = [\"git\", \"sh\"]",
            "network.allow = \"a.example:443\"",
            "network.mode = \"egress\"",
            "network.max_connections = 5",
            "syscalls.mode = \"deny-list\"",
            "syscalls.deny = \"socket\"",
        ],
        &["syscalls.syscalls"],
    );
}

#[test]
fn the_users_configuration_of_a_tool_sandbox_becomes_the_tool_preset() {
    let text = r#"{ "sandbox": {
        "bash": { "defaultNetwork": "none", "proxyAllowlist": ["*.company.com"], "resources": { "memory": "1g", "timeout": 300000 } },
        "images": { "default": "meao-sandbox:latest" } } }"#;
    assert_imported(
        "config.json",
        text,
        &[
            "preset = \"tool\"",
            "network.mode = \"none\"",
            "network.allow = \"*.company.com\"",
            "limits.memory = \"1G\"",
            "limits.timeout = \"5m\"",
        ],
        &[
            "sandbox.bash.proxyAllowlist: its hosts count once network.mode is egress, as with --network egress",
            "sandbox.images",
        ],
    );
    let text = r#"{ "listenAddr": "0.0.0.0:3128", "allowlist": { "hosts": ["*.npmjs.org"], "ports": [80, 443] },
        "blocklist": { "hosts": ["localhost"], "ipRanges": ["10.0.0.0/8"] }, "logRequests": true, "logResponses": false }"#;
    let settings = [
        "network.allow = \"*.npmjs.org\"",
        "network.mode = \"egress\"",
        "network.deny = \"localhost\"",
        "network.deny = \"10.0.0.0/8\"",
    ];
    assert_imported("proxy.json", text, &settings, &["listenAddr", "logRequests", "logResponses"]);
    let text = r#"{ "env": "explicit", "allowedEnvVars": ["CI"], "cwd": "/w", "allowedPaths": ["~/w"],
        "blockedPaths": ["~/w/.env"], "timeout": 60000, "maxOutputSize": 1048576, "uid": 1000 }"#;
    assert_imported(
        "process.json",
        text,
        &[
            "preset = \"process-tool\"",
            "env.mode = \"explicit\"",
            "env.pass = \"CI\"",
            "files.write = \"~/w\"",
            "files.deny = \"~/w/.env\"",
            "limits.timeout = \"1m\"",
            "limits.output = \"1M\"",
        ],
        &["cwd", "uid"],
    );
}

const BUILD: &str = r#"
sandbox_config:
  resource_limits: {memory_mb: 2048, cpu_seconds: 300, wall_seconds: 600, processes: 50, threads: 100, files: 1000}
  file_system:
    workspace_size_mb: 10240
    target_size_mb: 5120
    log_size_mb: 100
    temp_size_mb: 1024
  network:
    enabled: true
    allowlist:
      - "crates.io"
    ports: [80, 443]
  security:
    strict_mode: true
    audit_logging: true
    block_shell_access: true
"#;

#[test]
fn a_build_tools_yaml_is_read() {
    assert_imported(
        "build.yaml",
        BUILD,
        &[
            "limits.memory = \"2G\"",
            "limits.cpu = \"5m\"",
            "limits.timeout = \"10m\"",
            "process.max = 50",
            "limits.open_files = 1000",
            "limits.storage = \"10G\"",
            "limits.output = \"100M\"",
            "limits.tmp_size = \"1G\"",
            "network.allow = \"crates.io\"",
            "network.mode = \"egress\"",
        ],
        &[
            "sandbox_config.resource_limits.threads",
            "sandbox_config.file_system.target_size_mb",
            "sandbox_config.security.strict_mode",
            "sandbox_config.security.audit_logging",
            "sandbox_config.security.block_shell_access",
        ],
    );
    let long = "directory_permissions: {workspace: ro, target: rw}\nsize_limits: {total_workspace: 10GB, temp_files: 1GB}\n\
        process_limits: {cpu_time: 300s, wall_time: 600s, memory: 512MB, processes: 25, threads: 50, file_descriptors: 500}\n\
        network_allowlist: [crates.io]\nblocked_protocols: [ftp]\nport_restrictions: {allowed_ports: [80]}\n\
        blocked_paths: [/etc, /usr/bin, /root, '/home/*/.*', 'C:/Windows']\n\
        execution_policy: {allowed_executables: [cargo, rustc], blocked_executables: [sh], command_validation: [{regex: x}]}\n";
    assert_imported(
        "build.yml",
        long,
        &[
            "limits.cpu = \"5m\"",
            "limits.timeout = \"10m\"",
            "limits.memory = \"512M\"",
            "process.max = 25",
            "limits.open_files = 500",
            "limits.storage = \"10G\"",
            "limits.tmp_size = \"1G\"",
            "project = \"read\"",
            "network.allow = \"crates.io:80\"",
            "network.mode = \"egress\"",
            "files.deny = \"/root\"",
            "process.executables = [\"cargo\", \"rustc\"]",
        ],
        &[
            "process_limits.threads",
            "directory_permissions.target",
            "blocked_protocols",
            "blocked_paths",
            "blocked_paths",
            "blocked_paths",
            "blocked_paths",
            "execution_policy.blocked_executables",
            "execution_policy.command_validation",
        ],
    );
}

#[test]
fn claude_codes_settings_are_read() {
    let text = r#"{
      "model": "opus",
      "permissions": { "allow": ["Bash(npm run *)", "Read(~/.zshrc)", "Edit(/docs/**)"], "ask": ["Bash(git push)"],
        "deny": ["Read(./.env)", "Read(//srv/keys/**)", "Edit(~/.bashrc)", "WebFetch(domain:x.example)", "Task"],
        "additionalDirectories": ["../other", "~/lib"] },
      "env": { "CI": "1" },
      "sandbox": { "enabled": true, "filesystem": { "allowWrite": ["/srv/build", "~/.cache/x"], "denyWrite": ["./conf"],
        "denyRead": ["~/clients"], "allowRead": ["~/clients/public"] },
        "network": { "allowedDomains": ["y.example", "*.z.example", "*"], "deniedDomains": ["bad.z.example"],
          "allowLocalBinding": true } } }"#;
    assert_imported(
        "settings.json",
        text,
        &[
            "files.read = \"~/.zshrc\"",
            "files.write = \"./docs\"",
            "files.deny = \"./.env\"",
            "files.deny = \"/srv/keys\"",
            "files.protect = \"~/.bashrc\"",
            "network.deny = \"x.example\"",
            "files.write = \"~/lib\"",
            "files.write = \"/srv/build\"",
            "files.write = \"~/.cache/x\"",
            "files.protect = \"./conf\"",
            "files.deny = \"~/clients\"",
            "files.read = \"~/clients/public\"",
            "network.allow = \"y.example\"",
            "network.allow = \"*.z.example\"",
            "network.mode = \"egress\"",
            "network.deny = \"bad.z.example\"",
            "env.set.CI = ...",
        ],
        &[
            "permissions.allow",
            "permissions.deny",
            "permissions.ask",
            "permissions.additionalDirectories",
            "sandbox.network.allowedDomains",
            "sandbox.network.allowLocalBinding",
            "sandbox.enabled",
            "model",
        ],
    );
}

#[test]
fn codexs_and_cursors_settings_are_read() {
    let codex = "model = \"x\"\nsandbox_mode = \"workspace-write\"\napproval_policy = \"on-request\"\n\
        [sandbox_workspace_write]\nwritable_roots = [\"/srv/out\", \"~/lib\"]\nnetwork_access = false\n\
        [shell_environment_policy]\ninherit = \"core\"\nexclude = [\"AWS_*\"]\nset = { CI = \"1\" }\n";
    assert_imported(
        "config.toml",
        codex,
        &[
            "project = \"write\"",
            "mode = \"dynamic\"",
            "files.write = \"/srv/out\"",
            "files.write = \"~/lib\"",
            "network.mode = \"none\"",
            "env.mode = \"clean\"",
            "env.block = \"AWS_*\"",
            "env.set.CI = ...",
        ],
        &["approval_policy", "model"],
    );
    let cursor = r#"{ "type": "workspace_readonly", "additionalReadwritePaths": ["/srv/out"],
        "additionalReadonlyPaths": ["~/lib"], "networkPolicy": { "default": "deny", "allow": ["x.example", "10.1.0.0/16:5432"], "deny": ["169.254.0.0/16"] } }"#;
    assert_imported(
        "sandbox.json",
        cursor,
        &[
            "isolation = \"full\"",
            "project = \"read\"",
            "files.write = \"/srv/out\"",
            "files.read = \"~/lib\"",
            "network.allow = \"x.example\"",
            "network.allow = \"10.1.0.0/16:5432\"",
            "network.mode = \"egress\"",
            "network.deny = \"169.254.0.0/16\"",
        ],
        &[],
    );
    assert_imported(
        "config.toml",
        "[sandbox_workspace_write]\nnetwork_access = true\n",
        &["network.mode = \"egress\""],
        &["sandbox_workspace_write.network_access"],
    );
}

#[test]
fn what_our_parser_refuses_becomes_a_remark() {
    let text = r#"{ "isolationLevel": "LEVEL_9", "filesystem": { "readWritePaths": ["/a/../b", "/srv/*"], "maxFileSize": 0 },
        "process": { "maxProcesses": 0 }, "resources": { "maxMemory": 5 } }"#;
    let (settings, remarks) = imported("tool.json", text);
    assert_eq!(settings, [""; 0]);
    assert_eq!(remarks.len(), 6, "{remarks:#?}");
}

#[test]
fn mistakes_are_told_and_no_small_file_grows() {
    for (name, text) in [
        ("x.json", "{"),
        ("x.json", "[]"),
        ("x.json", "{}"),
        ("x.yaml", "a: &a [1]\nb: *a\n"),
        ("x.yaml", "a: !!binary x\n"),
        ("x.yaml", "a: 1\na: 2\n"),
        ("x.yaml", "a: 1\n---\nb: 2\n"),
        ("x.toml", "a = "),
    ] {
        let result = import(Path::new(name), text, "auto");
        assert!(
            matches!(result, Err(ImportError::Notation { .. } | ImportError::UnknownFormat { .. })),
            "{name} {text}: {result:?}"
        );
    }
    let deep = "[".repeat(5000);
    assert!(import(Path::new("x.yaml"), &deep, "auto").is_err());
    assert!(matches!(import(Path::new("x.json"), "{}", "nosuch"), Err(ImportError::Flag(_))));
}

#[test]
fn settings_of_srt_mean_the_same() {
    let text = r#"{
      "network": { "allowedDomains": ["registry.npmjs.org", "*.github.com"], "deniedDomains": ["evil.example"],
                   "allowUnixSockets": ["/run/x.sock"], "allowLocalBinding": false },
      "filesystem": { "denyRead": ["~/.ssh"], "allowRead": [], "allowWrite": [".", "src", "/srv/out", "/tmp"], "denyWrite": [".env"] },
      "ignoreViolations": { "*": ["/usr/bin"] }, "enableWeakerNestedSandbox": false, "colour": "green"
    }"#;
    let settings = [
        "files.write = \"./\"",
        "files.write = \"./src\"",
        "files.write = \"/srv/out\"",
        "files.protect = \"./.env\"",
        "files.deny = \"~/.ssh\"",
        "network.allow = \"registry.npmjs.org\"",
        "network.allow = \"*.github.com\"",
        "network.mode = \"egress\"",
        "network.deny = \"evil.example\"",
        "network.sockets = { path = \"/run/x.sock\", optional = true, reason = \"network.allowUnixSockets\" }",
    ];
    let remarks = [
        "filesystem.allowWrite",
        "network.allowLocalBinding",
        "ignoreViolations",
        "enableWeakerNestedSandbox",
        "colour",
    ];
    assert_imported("settings.json", text, &settings, &remarks);
    let (settings, _) = imported("settings.json", r#"{ "filesystem": { "allowWrite": ["/srv/out"] } }"#);
    assert_eq!(settings[0], "project = \"read\"", "there the project is not writable unless it is named");
}

#[track_caller]
fn assert_command(line: &str, settings: &[&str], remarks: &[&str]) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let draft = import_words(&words, "auto").unwrap_or_else(|error| panic!("{line}: {error}"));
    let found: Vec<String> = draft.settings.iter().map(ToString::to_string).collect();
    assert_eq!(found, settings, "{line}");
    let starts: Vec<&str> = draft.remarks.iter().map(|remark| remark.split(" = ").next().unwrap_or_default()).collect();
    assert_eq!(starts, remarks, "{:#?}", draft.remarks);
}

#[test]
fn every_option_of_a_bwrap_command_line_becomes_a_rule_or_a_remark() {
    assert_command(
        "/usr/bin/bwrap --ro-bind / / --ro-bind /opt/tool /opt/tool --bind ~/work ~/work --bind /a /b --dev /dev --proc /proc \
         --tmpfs /tmp --tmpfs ~/.ssh --unshare-all --die-with-parent --setenv A b --unsetenv C --chdir /x --frobnicate -- make -j 2",
        &[
            "files.read = \"/opt/tool\"",
            "files.write = \"~/work\"",
            "files.deny = \"~/.ssh\"",
            "env.set.A = ...",
            "env.block = \"C\"",
            "network.mode = \"none\"",
        ],
        &[
            "--ro-bind",
            "--bind",
            "--dev",
            "--proc",
            "--tmpfs",
            "--unshare-all",
            "--die-with-parent",
            "--chdir",
            "--frobnicate",
            "command",
        ],
    );
    assert_command("bwrap --unshare-all --share-net sh", &[], &["--unshare-all", "--share-net", "command"]);
}

#[test]
fn every_option_of_a_firejail_command_line_becomes_a_rule_or_a_remark() {
    assert_command(
        "firejail --noprofile --net=none --whitelist=${HOME}/work --read-only=/srv --blacklist=${HOME}/mail --env=A=b \
         --rlimit-nofile=64 --timeout=00:10:00 --private --nosound --caps.drop=all vim",
        &[
            "network.mode = \"none\"",
            "files.write = \"~/work\"",
            "files.read = \"/srv\"",
            "files.deny = \"~/mail\"",
            "env.set.A = ...",
            "limits.open_files = 64",
            "limits.timeout = \"10m\"",
        ],
        &["--noprofile", "--private", "--nosound", "--caps.drop", "command"],
    );
}
