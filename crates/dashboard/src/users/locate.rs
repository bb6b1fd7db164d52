//! The place of a field, found in a second reading of the file.

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// The line and the column of a field such as `users[0].role`, from 1. If the field is absent, the place of the nearest field
/// around it. `None` for the whole file.
pub(super) fn position(text: &str, field: &str) -> Option<(u64, u64)> {
    let steps: Vec<&str> = field.split(['.', '[']).map(|step| step.trim_end_matches(']')).collect();
    (1..=steps.len()).rev().find_map(|length| {
        let mut found = None;
        let descent = Descent { steps: &steps[..length], found: &mut found };
        // The text is valid, or the error is not about a field.
        let read =
            serde_saphyr::with_deserializer_from_str(text, |deserializer| descent.deserialize(deserializer));
        read.ok().and(found)
    })
}

/// The way to a field.
struct Descent<'a> {
    steps: &'a [&'a str],
    found: &'a mut Option<(u64, u64)>,
}

impl<'de> DeserializeSeed<'de> for Descent<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(step) = self.steps.first() else {
            let place = Spanned::<IgnoredAny>::deserialize(deserializer)?.referenced;
            *self.found = (place.line() > 0).then(|| (place.line(), place.column()));
            return Ok(());
        };
        match step.parse::<usize>() {
            Ok(_) => deserializer.deserialize_seq(self),
            Err(_) => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Descent<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a mapping or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.steps.split_first() else { return Err(A::Error::custom("no field")) };
        while let Some(key) = map.next_key::<String>()? {
            match key == *step {
                true => map.next_value_seed(Descent { steps: rest, found: &mut *self.found })?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let step = self.steps.split_first().map(|(step, rest)| (step.parse::<usize>(), rest));
        let Some((Ok(index), rest)) = step else { return Err(A::Error::custom("no entry")) };
        for _ in 0..index {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        list.next_element_seed(Descent { steps: rest, found: &mut *self.found })?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::position;

    #[test]
    fn place_is_of_the_field_or_of_the_nearest_field_around_it() {
        let text = "# comment\nusers:\n- {name: ada}\n- name: bob\n  role: x\n";
        for (field, expected) in [
            ("users[1].role", Some((5, 9))),
            ("users[0].name", Some((3, 10))),
            ("users[0].role", Some((3, 3))),
            ("users[7]", Some((3, 3))),
            ("", None),
            ("other", None),
        ] {
            assert_eq!(position(text, field), expected, "{field}");
        }
        assert_eq!(position("users: [", "users"), None);
    }
}
