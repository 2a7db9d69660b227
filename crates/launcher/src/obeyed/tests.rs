use super::*;
use cofferdam_policy::obeyed_names;

#[test]
fn every_name_of_the_list_is_met_where_it_lies() {
    let names = Names::shipped();
    for (index, listed) in obeyed_names().enumerate() {
        let text = listed.name.replace('*', "any");
        let path = if listed.in_git { format!(".git/{text}") } else { text };
        let (mut whole, mut begun) = (None, Vec::new());
        for (level, part) in path.split('/').enumerate() {
            (whole, begun) = names.go_on(&begun, level > 0, OsStr::new(part));
        }
        assert_eq!(whole, Some(index), "{path}");
    }
    for other in ["package.json.bak", "vscode", ".vscode2", "code-workspace", "README.md"] {
        assert_eq!(names.go_on(&[], false, OsStr::new(other)), (None, Vec::new()), "{other}");
    }
    assert!(names.go_on(&[], false, OsStr::new(".VSCode")).0.is_some(), "some file systems fold case");
    assert!(names.go_on(&[], true, OsStr::new(".vscode")).0.is_none(), "not in what is passed by");
}

#[test]
fn what_opens_comes_first_and_a_reason_is_short() {
    let names: Vec<_> = obeyed_names().collect();
    assert!(names.is_sorted_by_key(|name| name.class));
    for name in names {
        assert!(name.why.len() < 120, "{}: {}", name.name, name.why);
    }
}
