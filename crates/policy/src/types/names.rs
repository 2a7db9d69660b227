//! Words that name the values of a setting. Owns the macro that derives them, so that files, flags and variables use the same
//! words; the words stand beside each type. Used by `files`, `network` and `policy`.

macro_rules! display_as {
    ($type:ident { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($type::$variant => $text),+ })
            }
        }

        impl crate::language::quantity::Notation<$type> for $type {
            fn kept(self) -> $type {
                self
            }

            fn written(kept: &$type) -> String {
                kept.to_string()
            }
        }

        impl $type {
            /// The words that name a value, in files, flags and variables alike.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($type::$variant),)+ _ => None }
            }
        }
    };
}

pub(crate) use display_as;
