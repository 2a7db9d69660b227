use super::*;
use crate::facts::mount_table::parse_mounts;

/// `id parent device root point type source options`.
fn table(lines: &[&str]) -> Vec<MountFact> {
    let line = |line: &&str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [id, parent, device, root, point, kind, source, options] = fields[..] else { panic!("{line}") };
        format!("{id} {parent} {device} {root} {point} rw,relatime shared:1 - {kind} {source} {options}\n")
    };
    parse_mounts(lines.iter().map(line).collect::<String>().as_bytes())
}

fn decision(path: &str, access: Access) -> Decision {
    let fact = PathFact::Present { canonical: path.into(), kind: Kind::Directory, id: FileId { device: 1, inode: 2 } };
    let origin = Origin { layer: Layer::BuiltIn, source: "test".into(), line: None };
    found_out(path.into(), access, "", &origin, fact)
}

/// What is closed besides, with `~/.ssh` of `/home/u` hidden.
fn closed(lines: &[&str]) -> Vec<String> {
    closed_with(lines, &[decision("/home/u/.ssh", Access::Deny)])
}

fn closed_with(lines: &[&str], decided: &[Decision]) -> Vec<String> {
    let facts = HostFacts { home: "/home/u".into(), mounts: table(lines), ..HostFacts::default() };
    let mut found: Vec<String> =
        decisions(decided, &facts).iter().map(|decision| decision.path.display().to_string()).collect();
    found.sort();
    found
}

const ROOT: &str = "1 0 8:1 / / ext4 /dev/a rw";

#[test]
fn one_mount_of_each_file_system_has_no_other_names() {
    let none: [&str; 0] = [];
    assert_eq!(closed(&[ROOT]), none);
    assert_eq!(closed(&[ROOT, "2 1 8:2 / /home ext4 /dev/b rw", "3 1 0:9 / /proc proc proc rw"]), none);
    assert_eq!(closed(&[]), none);
}

#[test]
fn every_mount_of_the_same_tree_is_closed_too() {
    let home = "2 1 8:2 / /home ext4 /dev/b rw";
    let table: &[(&str, &[&str], &[&str])] = &[
        ("home bound", &[ROOT, "2 1 8:1 /home /mnt/h ext4 /dev/a rw"], &["/mnt/h/u/.ssh"]),
        ("the user's home bound", &[ROOT, "2 1 8:1 /home/u /mnt/u ext4 /dev/a rw"], &["/mnt/u/.ssh"]),
        ("the directory bound", &[ROOT, "2 1 8:1 /home/u/.ssh /mnt/s ext4 /dev/a rw"], &["/mnt/s"]),
        ("a file of it bound", &[ROOT, "2 1 8:1 /home/u/.ssh/id /mnt/id ext4 /dev/a rw"], &["/mnt/id"]),
        ("another directory bound", &[ROOT, "2 1 8:1 /home/v /mnt/v ext4 /dev/a rw"], &[]),
        ("a name that starts alike", &[ROOT, "2 1 8:1 /home/u/.sshd /mnt/v ext4 /dev/a rw"], &[]),
        ("a blank in the name", &[ROOT, "2 1 8:1 /home /mnt/a\\040b ext4 /dev/a rw"], &["/mnt/a b/u/.ssh"]),
        ("the disk of the home", &[ROOT, home, "3 1 8:2 / /data ext4 /dev/b rw"], &["/data/u/.ssh"]),
        (
            "home bound from a data disk",
            &[ROOT, "2 1 8:2 / /data ext4 /dev/b rw", "3 1 8:2 /homes /home ext4 /dev/b rw"],
            &["/data/homes/u/.ssh"],
        ),
        (
            "mounted over",
            &[ROOT, "2 1 8:1 /home /mnt/h ext4 /dev/a rw", "3 1 8:9 / /mnt ext4 /dev/c rw"],
            // The kernel walks the shorter mount point first.
            &[],
        ),
        ("stacked", &[ROOT, "2 1 8:1 /home /mnt/h ext4 /dev/a rw", "3 2 8:9 / /mnt/h ext4 /dev/c rw"], &[]),
        ("in a private place", &[ROOT, "2 1 8:1 /home /run/h ext4 /dev/a rw"], &[]),
        (
            "ostree",
            &[
                "1 0 8:1 /ostree/deploy/os/0 / ext4 /dev/a rw",
                "2 1 8:1 / /sysroot ext4 /dev/a rw",
                "3 1 8:1 /ostree/deploy/os/var/home /home ext4 /dev/a rw",
            ],
            &["/sysroot/ostree/deploy/os/var/home/u/.ssh"],
        ),
    ];
    for (what, lines, expected) in table {
        assert_eq!(closed(lines), *expected, "{what}");
    }
}

#[test]
fn subvolumes_have_one_device_and_what_lies_above_them_is_hidden_whole() {
    let usual = ["1 0 0:30 /@ / btrfs /dev/a rw", "2 1 0:30 /@home /home btrfs /dev/a rw"];
    // The names of snapshots; nothing else.
    assert_eq!(closed(&usual), ["/.snapshots", "/home/.snapshots"]);
    let top = [usual[0], usual[1], "3 1 0:30 / /mnt/top btrfs /dev/a rw"];
    assert_eq!(
        closed(&top),
        ["/.snapshots", "/home/.snapshots", "/mnt/top", "/mnt/top/.snapshots", "/mnt/top/@home/u/.ssh"]
    );
    let snapshot = [usual[0], usual[1], "3 1 0:30 /@home/.snapshots/7/snapshot /mnt/old btrfs /dev/a rw"];
    assert_eq!(closed(&snapshot), ["/.snapshots", "/home/.snapshots", "/mnt/old", "/mnt/old/.snapshots"]);
    let zfs =
        ["1 0 0:30 / / zfs tank/root rw", "2 1 0:31 / /home zfs tank/home rw", "3 1 0:32 / /old zfs tank/home@x rw"];
    assert_eq!(closed(&zfs), ["/home/.zfs", "/old"]);
}

#[test]
fn what_cannot_be_compared_is_hidden_whole_unless_a_rule_gives_it() {
    for kind in ["fuse", "fuse.bindfs", "fuse.sshfs", "nfs4", "cifs", "9p", "virtiofs", "ecryptfs"] {
        let line = format!("2 1 0:40 / /mnt/x {kind} source rw");
        assert_eq!(closed(&[ROOT, &line]), ["/mnt/x"], "{kind}");
        let hidden = decision("/home/u/.ssh", Access::Deny);
        let given = [hidden.clone(), decision("/mnt/x", Access::Read)];
        assert!(closed_with(&[ROOT, &line], &given).is_empty(), "{kind}: named");
        let above = [hidden, decision("/mnt", Access::Read)];
        assert_eq!(closed_with(&[ROOT, &line], &above), ["/mnt/x"], "{kind}: only what is above is named");
        // The home itself, a directory above it, the system.
        for point in ["/home/u", "/home", "/usr/lib/x", "/run/user/0/doc"] {
            assert!(closed(&[ROOT, &format!("2 1 0:40 / {point} {kind} source rw")]).is_empty(), "{kind} {point}");
        }
    }
    for kind in ["ext4", "xfs", "tmpfs", "fuse.snapfuse", "squashfs", "fuseblk"] {
        assert!(closed(&[ROOT, &format!("2 1 0:40 / /mnt/x {kind} source rw")]).is_empty(), "{kind}");
    }
}

#[test]
fn an_overlay_is_hidden_where_a_layer_shows_what_is_closed_or_is_not_known() {
    for (options, is_hidden) in [
        ("ro,lowerdir=/home/u:/empty", true),
        ("ro,lowerdir=/empty:/home", true),
        ("rw,lowerdir=/empty,upperdir=/home/u/.ssh/x,workdir=/w", true),
        ("rw,lowerdir=/srv/a,upperdir=/srv/b,workdir=/srv/c", false),
        ("rw,lowerdir=l/ABC,upperdir=/srv/b", true),
        ("rw", true),
        ("ro,lowerdir=/a\\134:b", true),
    ] {
        let expected: &[&str] = if is_hidden { &["/mnt/x"] } else { &[] };
        assert_eq!(closed(&[ROOT, &format!("2 1 0:40 / /mnt/x overlay overlay {options}")]), expected, "{options}");
    }
    // The root of a container: its layers are not there, and it is what everything is compared with.
    let none: [&str; 0] = [];
    assert_eq!(closed(&["1 0 0:40 / / overlay overlay rw,lowerdir=/var/lib/x:/y,upperdir=/z"]), none);
}

#[test]
fn what_is_protected_is_protected_under_its_other_names() {
    let lines = [ROOT, "2 1 8:1 /home /mnt/h ext4 /dev/a rw"];
    let held = PathFact::Missing { canonical: "/home/u/p/.a/b".into(), first: "/home/u/p/.a".into() };
    let missing = Decision { fact: held, ..decision("/home/u/p/.a/b", Access::Protect) };
    let facts = HostFacts { home: "/home/u".into(), mounts: table(&lines), ..HostFacts::default() };
    let found = decisions(&[decision("/home/u/p/.git/config", Access::Protect), missing], &facts);
    let paths: Vec<&Path> = found.iter().map(|decision| decision.path.as_path()).collect();
    assert_eq!(paths, [Path::new("/mnt/h/u/p/.git/config"), Path::new("/mnt/h/u/p/.a/b")]);
    assert!(found.iter().all(|decision| decision.access == Access::Protect && decision.reason.contains("/home/u/p/")));
    let first = PathFact::Missing { canonical: "/mnt/h/u/p/.a/b".into(), first: "/mnt/h/u/p/.a".into() };
    assert_eq!(found[1].fact, first);
}
