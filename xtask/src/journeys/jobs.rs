//! What is walked: projects and the commands that a developer types in them. Owns the files and the words; runs nothing. Called by `walk`.

/// One project, and what is typed in it, in order.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// Without one of these it is skipped.
    pub(crate) programs: &'static [&'static str],
    pub(crate) needs_rust: bool,
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) steps: &'static [Step],
    /// Makes the second run do the work again.
    pub(crate) clean: &'static str,
}

#[derive(Debug)]
pub(crate) struct Step {
    /// What the table calls it.
    pub(crate) name: &'static str,
    pub(crate) argv: &'static [&'static str],
    /// It worked if this script, outside, succeeds as well.
    pub(crate) proof: &'static str,
}

const fn step(name: &'static str, argv: &'static [&'static str], proof: &'static str) -> Step {
    Step { name, argv, proof }
}

pub(crate) const JOBS: &[Job] = &[
    Job {
        name: "npm",
        programs: &["npm", "node"],
        needs_rust: false,
        files: &[
            (
                "package.json",
                r#"{"name":"app","version":"1.0.0","private":true,"type":"module","scripts":{"build":"tsc --noEmit && vite build"}}"#,
            ),
            (
                "tsconfig.json",
                r#"{"compilerOptions":{"module":"esnext","moduleResolution":"bundler","target":"es2022","strict":true,"types":[]},"include":["src"]}"#,
            ),
            (
                "index.html",
                "<!doctype html><div id=\"app\"></div><script type=\"module\" src=\"/src/main.ts\"></script>\n",
            ),
            ("src/main.ts", "const greeting: string = 'hello';\nexport default greeting;\nconsole.log(greeting);\n"),
        ],
        steps: &[
            step("npm install", &["npm", "install", "express", "typescript", "vite"], "test -d node_modules/vite"),
            step("npm run build", &["npm", "run", "build"], "test -f dist/index.html"),
        ],
        clean: "rm -rf node_modules package-lock.json dist",
    },
    Job {
        name: "cargo",
        programs: &["cc"],
        needs_rust: true,
        files: &[
            (
                "Cargo.toml",
                "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n\
                 serde = { version = \"1\", features = [\"derive\"] }\nregex = \"1\"\n",
            ),
            (
                "src/main.rs",
                "#[derive(serde::Serialize)]\nstruct Word(String);\nfn is_word(text: &str) -> bool {\n    \
                 regex::Regex::new(\"^[a-z]+$\").is_ok_and(|words| words.is_match(text))\n}\n\
                 fn main() {\n    let word = Word(\"hello\".to_owned());\n    println!(\"{} {}\", word.0, is_word(&word.0));\n}\n\
                 #[test]\nfn a_word_is_one() {\n    assert!(is_word(\"hello\"));\n}\n",
            ),
        ],
        steps: &[
            step("cargo build", &["cargo", "build"], "./target/debug/app"),
            step("cargo test", &["cargo", "test"], "ls target/debug/deps/app-*"),
        ],
        clean: "rm -rf target Cargo.lock",
    },
    Job {
        name: "go",
        programs: &["go"],
        needs_rust: false,
        files: &[
            ("go.mod", "module example.org/app\n\ngo 1.19\n"),
            ("main.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n"),
        ],
        steps: &[step("go build", &["go", "build", "-o", "app"], "./app")],
        clean: "rm -f app",
    },
    Job {
        name: "pip",
        programs: &["python3"],
        needs_rust: false,
        files: &[("test_app.py", "import requests\n\n\ndef test_it_is_there():\n    assert requests.__version__\n")],
        steps: &[
            step("python3 -m venv", &["python3", "-m", "venv", ".venv"], "test -x .venv/bin/pip"),
            step(
                "pip install",
                &[".venv/bin/pip", "install", "requests", "pytest"],
                "ls .venv/lib/python3*/site-packages/requests",
            ),
            step("pytest", &[".venv/bin/pytest"], "true"),
        ],
        clean: "rm -rf .venv",
    },
    Job {
        name: "cmake",
        programs: &["cmake", "ctest", "c++", "make"],
        needs_rust: false,
        files: &[
            (
                "CMakeLists.txt",
                "cmake_minimum_required(VERSION 3.10)\nproject(app CXX)\nadd_executable(app main.cpp)\nenable_testing()\n\
                 add_test(NAME runs COMMAND app)\n",
            ),
            ("main.cpp", "#include <iostream>\nint main() { std::cout << \"hello\\n\"; }\n"),
        ],
        steps: &[
            step("cmake", &["sh", "-c", "cmake -B build && cmake --build build"], "./build/app"),
            step("ctest", &["ctest", "--test-dir", "build"], "true"),
        ],
        clean: "rm -rf build",
    },
    Job {
        name: "java",
        programs: &["javac", "java"],
        needs_rust: false,
        files: &[(
            "App.java",
            "public class App {\n    public static void main(String[] words) {\n        System.out.println(\"hello\");\n    }\n}\n",
        )],
        steps: &[step("javac", &["javac", "App.java"], "test -f App.class"), step("java", &["java", "App"], "true")],
        clean: "rm -f App.class",
    },
];
