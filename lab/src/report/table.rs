//! Tables, with output as HTML, as Markdown and as plain text.

use super::words::{escape, escape_markdown};

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

/// A column's head.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) title: String,
    /// A second line in smaller letters.
    pub(super) note: String,
    pub(super) is_number: bool,
    /// Whether the figures are published, which separates them from measured figures.
    pub(super) is_published: bool,
}

/// A row; its first cell is its head.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    /// Whether the row is a part of the sum in an earlier row, or a limit of the figures.
    pub(super) is_detail: bool,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// The emphasis of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    /// No error occurred, as required. The report shows the cell in a quiet colour.
    Quiet,
    /// An error occurred.
    Bad,
    /// The colour of the contestant at this place, with its mark, precedes the text.
    Contestant(usize),
}

impl Column {
    pub(super) fn words(title: impl Into<String>) -> Self {
        Self { title: title.into(), note: String::new(), is_number: false, is_published: false }
    }

    pub(super) fn number(title: impl Into<String>) -> Self {
        Self { is_number: true, ..Self::words(title) }
    }

    pub(super) fn published(title: impl Into<String>, note: impl Into<String>) -> Self {
        Self { note: note.into(), is_published: true, ..Self::number(title) }
    }

    pub(super) fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

impl Row {
    pub(super) fn of(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), is_detail: false }
    }

    pub(super) fn detail(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), is_detail: true }
    }

    /// Its cells for a terminal; the head of a detail is indented.
    fn text(&self) -> Vec<String> {
        let mut cells: Vec<String> = self.cells.iter().map(|cell| cell.text.clone()).collect();
        if let Some(head) = cells.first_mut().filter(|_| self.is_detail) {
            head.insert_str(0, "  ");
        }
        cells
    }
}

impl Cell {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    pub(super) fn contestant(text: impl Into<String>, slot: usize) -> Self {
        Self { text: text.into(), tone: Tone::Contestant(slot) }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Bad }
    }

    /// The number of errors.
    pub(super) fn errors(count: u64) -> Self {
        let tone = if count > 0 { Tone::Bad } else { Tone::Quiet };
        Self { text: super::words::count(count), tone }
    }

    /// A published figure, or an empty cell.
    pub(super) fn quiet(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Quiet }
    }

    fn html(&self) -> String {
        let text = escape(&self.text);
        match self.tone {
            Tone::Contestant(slot) => super::page::swatch(slot) + &text,
            Tone::Plain | Tone::Quiet | Tone::Bad => text,
        }
    }
}

impl Table {
    /// The table in a separate box, which scrolls if the table is wide.
    pub(super) fn html(&self) -> String {
        let caption = escape(&self.caption);
        // A scrolling box must be reachable by keyboard, so the box needs a name.
        let mut out =
            format!("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>");
        out += &format!("<caption>{caption}</caption><thead><tr>");
        for column in &self.columns {
            let note = if column.note.is_empty() {
                String::new()
            } else {
                format!("<small>{}</small>", escape(&column.note))
            };
            out += &format!("<th scope=\"col\"{}>{}{note}</th>", column.class(""), escape(&column.title));
        }
        out += "</tr></thead><tbody>";
        for row in &self.rows {
            out += if row.is_detail { "<tr class=\"detail\">" } else { "<tr>" };
            for (index, (cell, column)) in row.cells.iter().zip(&self.columns).enumerate() {
                let tone = match cell.tone {
                    Tone::Plain | Tone::Contestant(_) => "",
                    Tone::Quiet => "quiet",
                    Tone::Bad => "bad",
                };
                let (open, close) = if index == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
                out += &format!("<{open}{}>{}</{close}>", column.class(tone), cell.html());
            }
            out += "</tr>";
        }
        out + "</tbody></table></div>\n"
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = format!("**{}**\n\n", escape_markdown(&self.caption));
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        out += &line(self.heads().map(|head| escape_markdown(&head)).collect());
        out += &line(
            self.columns
                .iter()
                .map(|column| if column.is_number { "---:" } else { "---" }.to_owned())
                .collect(),
        );
        for row in &self.rows {
            let cells = row.cells.iter().map(|cell| escape_markdown(&cell.text));
            let indented = cells.enumerate().map(|(index, text)| {
                if row.is_detail && index == 0 { format!("&nbsp;&nbsp;{text}") } else { text }
            });
            out += &line(indented.collect());
        }
        out + "\n"
    }

    /// The table for a terminal.
    pub(super) fn text(&self) -> String {
        let heads: Vec<String> = self.heads().collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::text).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
            cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let mut out = String::new();
            for ((text, column), width) in cells.iter().zip(&self.columns).zip(&widths) {
                out +=
                    &if column.is_number { format!("  {text:>width$}") } else { format!("  {text:<width$}") };
            }
            out.trim_end().to_owned() + "\n"
        };
        let mut out = line(heads.iter().map(String::as_str).collect());
        for cells in &rows {
            out += &line(cells.iter().map(String::as_str).collect());
        }
        out
    }

    fn heads(&self) -> impl Iterator<Item = String> {
        self.columns.iter().map(
            |Column { title, note, .. }| {
                if note.is_empty() { title.clone() } else { format!("{title} ({note})") }
            },
        )
    }
}

impl Column {
    fn class(&self, tone: &str) -> String {
        let mut classes = vec![];
        if self.is_number {
            classes.push("number");
        }
        if self.is_published {
            classes.push("published");
        }
        if !tone.is_empty() {
            classes.push(tone);
        }
        if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            caption: "What <b>".to_owned(),
            columns: vec![Column::words("who"), Column::published("errors", "2020")],
            rows: vec![
                Row::of([Cell::contestant("a|b", 1), Cell::errors(1200)]),
                Row::detail([Cell::plain("c"), Cell::errors(0)]),
            ],
        }
    }

    #[test]
    fn tables_escape_names_in_html_and_markdown() {
        assert!(table().html().contains("<caption>What &lt;b&gt;</caption>"));
        assert!(
            table().html().contains("<td class=\"number published bad\">1,200</td>"),
            "{}",
            table().html()
        );
        assert_eq!(
            table().markdown(),
            "**What &lt;b&gt;**\n\n| who | errors (2020) |\n| --- | ---: |\n| a\\|b | 1,200 |\n| &nbsp;&nbsp;c | 0 |\n\n"
        );
    }

    #[test]
    fn text_table_has_aligned_columns() {
        assert_eq!(table().text(), "  who  errors (2020)\n  a|b          1,200\n    c              0\n");
    }
}
