//! The table of settings: every key of a policy file, once. Owns the rows; what is made of them stands with its makers:
//! `types::scalar` (value, order, mistakes, place in a policy), `types::limit` (the limits of a policy), `format::tables` (reading a
//! file, and the schema), `build.rs` (presets). Merge, tighten, ceilings, export, diff and explain go by what `scalar` makes.
//!
//! A row is a setting with one value:
//!
//! ```text
//! /// What it does; the schema shows this.
//! key: notation in a file => Variant(type that is kept) in the.field.of.Policy,
//!     shown "label where the key does not tell", least VALUE => "what to write instead", only Layer;
//! ```
//!
//! The last three can be left out. `lists` are the keys that hold no single value, with their types in a file; what they mean is
//! `format::file`'s and `format::network`'s.

/// Hands every row to the macro `$with`.
macro_rules! settings {
    ($with:ident) => {
        $with! {
            /// A policy file. Everything is optional: what is absent is left to the layers below.
            PolicyFile "" "" {
                /// How strongly the command is kept apart from the host.
                isolation: Isolation => Isolation(Isolation) in isolation;
                /// When a path is decided.
                mode: Mode => Mode(Mode) in mode;
                /// Whether processes inside may trace each other.
                debug: bool => Debug(bool) in debug;
                /// What becomes of the session when a host program takes a cover off: `report` or `strict`.
                keeper: KeeperMode => Keeper(KeeperMode) in keeper;
                /// How the project directory is given: `read`, `overlay` or `write`.
                project: Access => Project(Access) in project, least Access::Read => "`read`, `overlay` or `write`";
                /// What becomes of what is written in the project: `false` (written directly), `true` (kept for review) or `"auto"`
                /// (kept apart, and applied at the end).
                transaction: Transaction => Transaction(Transaction) in transaction;
                /// What a transaction is written to: `overlay`, or `copy` of the project, in which directories can be renamed.
                transaction_mode: TransactionMode => TransactionMode(TransactionMode) in transaction_mode, shown "a transaction is written to";
                /// The end of a command is told at a multiple of this time after its start: `"100ms"`.
                completion_quantum: Quantum => CompletionQuantum(Quantum) in completion_quantum, shown "ends are told at multiples of", least LONGEST_QUANTUM => "at most 10s";
                /// Whether `isolation = "none"` may be asked for. Counts in the org's policy only.
                allow_isolation_none: bool => AllowIsolationNone(bool) in none_approved, only Org;
                /// Whether sessions get the host's own network without an approval; counts in the org's policy only.
                allow_network_host: bool => AllowNetworkHost(bool) in host_network_approved, only Org;
            } lists {
                /// Version of this format; 1 where absent.
                version: Option<At<u32>>,
                /// What the policy is for, in a sentence.
                description: Option<String>,
                /// Presets to apply on top of `default`: one name or a list.
                preset: Option<At<Texts>>,
                files: FilesTable,
                unknown: UnknownTable,
                process: ProcessTable,
                network: NetworkTable,
                limits: LimitsTable,
                syscalls: SyscallsTable,
                response: ResponseTable,
                audit: AuditTable,
                env: EnvTable,
                /// Counts in shipped presets only; those of an organisation are `requirements.toml`.
                #[cfg_attr(feature = "schema", schemars(skip))]
                most: Option<At<MostTable>>,
            }

            /// Paths. The rule with the longest path that contains a file decides about it.
            FilesTable "files" "" {} lists {
                /// Readable.
                read: Vec<At<PathEntry>>,
                /// Writable for real.
                write: Vec<At<PathEntry>>,
                /// Looks writable; nothing reaches the host.
                overlay: Vec<At<PathEntry>>,
                /// Content is absent.
                deny: Vec<At<PathEntry>>,
                /// Read-only, and cannot be created where missing.
                protect: Vec<At<PathEntry>>,
            }

            /// What happens at the first access to a path that no rule is about, in dynamic mode.
            UnknownTable "unknown" "" {
                /// `ask`, `deny` or `allow-and-log`.
                verdict: OnUnknown => UnknownVerdict(OnUnknown) in unknown.verdict, shown "unknown paths:";
                /// What can be seen of a path that is not decided yet.
                metadata: Metadata => UnknownMetadata(Metadata) in unknown.metadata, shown "metadata of unknown paths:";
                /// A question without an answer by then is denied.
                timeout: Time => UnknownTimeout(Duration) in unknown.timeout, shown "a question is denied after";
                /// Past this many questions in a minute the rest are denied.
                per_minute: u32 => QuestionsPerMinute(u32) in unknown.per_minute, shown "questions a minute at most";
                /// Whether the terminal rings where a question is asked on it.
                bell: bool => QuestionBell(bool) in unknown.bell, shown "the terminal rings at a question";
                /// Whether the desktop shows a notification of a question.
                desktop: bool => QuestionOnDesktop(bool) in unknown.desktop, shown "a notification of the desktop at a question";
            } lists {
                /// A program that is told of every question and may answer it. Counts in the policies of user and org only.
                hook: Option<At<Vec<String>>>,
            }

            /// Starting programs.
            ProcessTable "process" "" {
                /// Where `false`: threads only.
                allow_fork: bool => AllowFork(bool) in process.allow_fork, shown "fork";
                /// Where `false`, the command cannot execute another program.
                allow_exec: bool => AllowExec(bool) in process.allow_exec, shown "exec";
                /// Most processes and threads alive at once.
                max: u32 => MaxProcesses(u32) in process.max, shown "at most", least 1 => "at least 1";
            } lists {
                /// Where given: only these programs can be executed.
                executables: Option<At<Vec<String>>>,
            }

            /// What a session can reach. What is denied wins over what is allowed.
            NetworkTable "network" "" {
                /// `none`, `egress` (the allowed hosts) or `host` (all, unfiltered).
                mode: NetworkMode => Network(NetworkMode) in network.mode;
                /// Most connections open at once.
                max_connections: u32 => MaxConnections(u32) in network.max_connections, least 1 => SOME_NETWORK;
                /// Most lookups of names in a second.
                queries_per_second: u32 => QueriesPerSecond(u32) in network.queries_per_second, least 1 => SOME_NETWORK;
                /// Most bytes sent and received, together.
                bytes: Size => NetworkBytes(u64) in network.bytes, least 1 => SOME_NETWORK;
                /// A connection on which nothing moves is closed after this time.
                idle_timeout: Time => IdleTimeout(Duration) in network.idle_timeout, least SECOND => SOME_TIME;
                /// A request that is not complete by then is refused.
                header_timeout: Time => HeaderTimeout(Duration) in network.header_timeout, least SECOND => SOME_TIME;
                /// Whether keys of the ssh-agent sign for the session.
                ssh_agent: AgentUse => SshAgent(AgentUse) in network.ssh_agent;
            } lists {
                /// Hosts that can be reached in mode `egress`: `x.org`, `*.x.org`, `**.x.org`, `10.1.2.3:5432`, `10.0.0.0/8:*`.
                allow: Vec<At<HostEntry>>,
                /// Hosts that cannot be reached, whatever is allowed. Without a port: on every port.
                deny: Vec<At<HostEntry>>,
                /// Where names are looked up, as `address:port`. Not from a project.
                resolvers: Vec<At<String>>,
                /// Ports of the session that can be reached from this host: `"8080:80"`, or `"8080"` on both sides.
                publish: Vec<At<String>>,
                /// Ports of this host's loopback that the session can reach.
                host_ports: Vec<At<u16>>,
                /// Sockets of this host that the session can connect to, by their paths.
                sockets: Vec<At<PathEntry>>,
                /// Secrets that are put into requests outside. Not from a project.
                credentials: Vec<At<CredentialTable>>,
            }

            /// How much of the machine a session may use: all its processes together, where nothing else is said.
            LimitsTable "limits" "" {
                /// Wall-clock time for the whole run.
                timeout: Time => Timeout(Duration) in limits.timeout, least SECOND => SOME_TIME;
                /// CPU time.
                cpu: Time => CpuSeconds(u64) in limits.cpu_seconds, least 1 => SOME;
                /// CPUs used at once; `1.5` is one and a half.
                cpus: Cpus => CpuMillis(u32) in limits.cpu_millis, least LEAST_CPU_MILLIS => "at least 0.01";
                /// The CPUs that may be used.
                cpu_set: CpuSet => CpuSet(String) in limits.cpu_set;
                /// Memory; swap is never used.
                memory: Size => Memory(u64) in limits.memory, least LEAST_MEMORY => ENOUGH_MEMORY;
                /// Memory above which the session is slowed down.
                memory_high: Size => MemoryHigh(u64) in limits.memory_high, least LEAST_MEMORY => ENOUGH_MEMORY;
                /// Descriptors of each process.
                open_files: u64 => OpenFiles(u64) in limits.open_files, least 1 => SOME, least LEAST_OPEN_FILES => "at least 16";
                /// Largest single file.
                file_size: Size => FileSize(u64) in limits.file_size, least 1 => SOME;
                /// Size of each private temporary file system.
                tmp_size: Size => TmpSize(u64) in limits.tmp_size, least 1 => SOME;
                /// Files and directories in each private temporary file system.
                tmp_inodes: u64 => TmpInodes(u64) in limits.tmp_inodes, least 1 => SOME;
                /// Bytes that may be added to each file system of the host.
                storage: Size => Storage(u64) in limits.storage, least 1 => SOME;
                /// Files and directories that may be added to each file system of the host.
                inodes: u64 => Inodes(u64) in limits.inodes, least 1 => SOME;
                /// Bytes written to stdout and stderr together.
                output: Size => Output(u64) in limits.output, least 1 => SOME;
            } lists {
                io: IoTable,
            }

            /// What a second may take, for each disk.
            IoTable "limits" "io." {
                /// Bytes read a second.
                read: Size => IoRead(u64) in limits.io_read, least 1 => SOME;
                /// Bytes written a second.
                write: Size => IoWrite(u64) in limits.io_write, least 1 => SOME;
                /// Reads a second.
                read_ops: u64 => IoReadOps(u64) in limits.io_read_ops, least 1 => SOME;
                /// Writes a second.
                write_ops: u64 => IoWriteOps(u64) in limits.io_write_ops, least 1 => SOME;
            } lists {}

            /// System calls. The dangerous ones are refused whatever is said here.
            SyscallsTable "syscalls" "" {
                /// What becomes of calls that no table names.
                mode: SyscallMode => SyscallMode(SyscallMode) in syscalls.mode;
                /// The session ends once this many notable calls were refused.
                max_violations: u32 => MaxViolations(u32) in syscalls.max_violations, shown "violations before the end";
            } lists {
                /// Added to the built-in table.
                allow: Vec<At<String>>,
                /// Refused, logged, counted.
                deny: Vec<At<String>>,
            }

            /// What follows when the workload tries what is a sign of an escape.
            ResponseTable "response" "" {
                /// What an indicator of the level CRITICAL does: `end` or `record`.
                critical: OnCritical => OnCritical(OnCritical) in response.critical, shown "a critical indicator:";
                /// The session ends past this many indicators of the level MEDIUM or above; without it they are counted.
                max_medium: u32 => MaxMedium(u32) in response.max_medium, shown "indicators before the end";
            } lists {
                /// A program outside that is told when a session was ended for what it tried. Not from a project.
                hook: Option<At<Vec<String>>>,
            }

            /// The audit log.
            AuditTable "audit" "" {
                /// Sessions remove records that are older: `"90d"`, `"forever"`.
                keep: Retention => AuditKeep(Retention) in audit_keep, shown "audit records are kept";
            } lists {}

            /// Variables of the command.
            EnvTable "env" "" {
                /// Which of the caller's variables come along.
                mode: EnvMode => EnvMode(EnvMode) in env.mode;
            } lists {
                /// Names or globs let through; only an exact name lifts a block.
                pass: Vec<At<String>>,
                /// Globs that never come along unless `pass` names the variable exactly.
                block: Vec<At<String>>,
                /// Variables with fixed values.
                set: BTreeMap<String, At<String>>,
            }
        }
    };
}

pub(crate) use settings;
