//! What a person does with changes besides taking all of them: a patch of them.

use super::*;
use crate::patch::{self, Held};

/// Everything that waits as `git apply` reads it.
fn patch_of(transaction: &Transaction) -> Vec<u8> {
    let mut text = Vec::new();
    for change in &transaction.changes().expect("readable")[0].changes {
        let mut sink = |_: patch::Part, line: &[u8]| {
            text.extend_from_slice(line);
            text.push(b'\n');
            Ok(())
        };
        let held = patch::write(transaction, 0, change, &mut sink).expect("it is memory");
        assert_ne!(held, Held::Left, "{}", change.path.display());
    }
    text
}

const OF_EVERY_KIND: &str = r#"
    printf 'a\nb' > no-end; printf 'a\n' > loses-end; printf 'x\r y\rz\n' > returns; echo 1 > 'with space'
    head -c 60 /dev/zero > zeros; printf 'old\0' > binary; printf 'gone\0' > gone-binary; : > was-empty
    echo x > becomes-link; ln -s no-end becomes-file; ln -s no-end moves; mkdir -p dir/sub tree; echo d > dir/sub/d
    echo t > tree/t; echo plain > plain-to-dir; echo '#!/bin/sh' > tool; echo q > 'quote"d'; seq 1 60 > long
    printf '\377\376 latin\n' > latin"#;
const EVERY_KIND: &str = r#"
    printf 'a\nc' > no-end; printf 'a' > loses-end; printf 'x\r w\rz\n' > returns; echo 2 > 'with space'; echo n > 'new one'
    head -c 200000 /dev/urandom > random; printf 'new\0' > binary; rm gone-binary; echo full > was-empty; : > empty
    rm becomes-link; ln -s no-end becomes-link; rm becomes-file; echo f > becomes-file; rm moves; ln -s tool moves
    rm -r dir; echo file > dir; rm plain-to-dir; mkdir plain-to-dir; echo in > plain-to-dir/in; chmod +x tool
    echo r > 'quote"d'; printf 'tab' > "$(printf 'a\tb')"; echo u > "$(printf 'n\303\244me')"; sed -i '5d;30s/^/x/;58a new' long
    printf '\377\375 latin\n' > latin; rm tree/t; rmdir tree; head -c 51 zeros > short-binary; rm zeros"#;

#[test]
fn git_makes_of_the_patch_what_a_commit_makes() {
    apart("review::git_makes_of_the_patch_what_a_commit_makes", || {
        let mut scene = Scene::new();
        sh(&scene.project(), OF_EVERY_KIND);
        sh(&scene.base, "cp -a project copy");
        let mut transaction = scene.session(EVERY_KIND);
        let patch = patch_of(&transaction);
        std::fs::write(scene.base.join("changes.patch"), &patch).expect("ours");
        sh(&scene.base, "cd copy; git apply --whitespace=nowarn ../changes.patch");
        let applied = picture(&scene.base.join("copy"));
        commit_all(&mut transaction);
        assert_eq!(applied, picture(&scene.project()));
        // And back: what was there before is in it, too. A link that became a file git makes a file again, also by patches of its own.
        sh(&scene.base, "cd copy; git apply -R --whitespace=nowarn ../changes.patch; rm becomes-file; mkdir ../before");
        sh(&scene.base.join("before"), &format!("{OF_EVERY_KIND}; rm becomes-file"));
        assert_eq!(picture(&scene.base.join("copy")), picture(&scene.base.join("before")));
    });
}

#[test]
fn tar_makes_of_the_archive_what_a_commit_makes_but_for_what_was_removed() {
    apart("review::tar_makes_of_the_archive_what_a_commit_makes_but_for_what_was_removed", || {
        let mut scene = Scene::new();
        sh(&scene.project(), "echo a > a; ln -s a link; mkdir gone; echo g > gone/g");
        sh(&scene.base, "cp -a project copy");
        let deep = ["long-name-of-a-directory"; 8].join("/");
        let script = format!(
            "echo b >> a; rm link; ln -s /etc/{deep} link; rm -r gone; mkdir -p {deep}; head -c 1000 /dev/urandom > {deep}/x
             chmod 700 {deep}; : > empty; head -c 512 /dev/zero > block; ln a second; echo u > \"$(printf 'n\\377me')\""
        );
        let mut transaction = scene.session(&script);
        let changes = transaction.changes().expect("readable");
        let mut archive = Vec::new();
        let not_held = crate::archive::write(&transaction, 0, &changes[0].changes, &mut archive).expect("it is memory");
        assert_eq!(not_held.removed, [PathBuf::from("gone"), PathBuf::from("gone/g")]);
        assert!(not_held.left.is_empty(), "{not_held:?}");
        std::fs::write(scene.base.join("changes.tar"), &archive).expect("ours");
        sh(&scene.base, "cd copy; rm a link; tar xpf ../changes.tar; rm -r gone second; ln a second");
        let unpacked = picture(&scene.base.join("copy"));
        commit_all(&mut transaction);
        assert_eq!(unpacked, picture(&scene.project()));
    });
}
