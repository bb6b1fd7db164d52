//! The visitors of the developer portal that see an object.

/// The visitors of the developer portal that see an Api or a Plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// No visitor.
    #[default]
    Hidden,
    /// All visitors, also without a login.
    Public,
    /// The users in one of these groups.
    Groups(Vec<Box<str>>),
}

impl Visibility {
    /// Whether a visitor in these groups sees the object.
    #[must_use]
    pub fn allows(&self, groups: &[impl AsRef<str>]) -> bool {
        match self {
            Self::Hidden => false,
            Self::Public => true,
            Self::Groups(allowed) => {
                allowed.iter().any(|allowed| groups.iter().any(|group| group.as_ref() == &**allowed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_of_a_named_group_see_the_object() {
        let none: [&str; 0] = [];
        let groups = Visibility::Groups(vec!["partners".into(), "staff".into()]);
        assert!(groups.allows(&["other", "staff"]));
        assert!(!groups.allows(&["other", "staffs", ""]) && !groups.allows(&none));
        assert!(Visibility::Public.allows(&none));
        assert!(!Visibility::Hidden.allows(&["partners", ""]));
    }
}
